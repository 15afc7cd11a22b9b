"""An analysed trace on a terminal: verdict first, then where the time goes, then who causes it.

Reads without colour and when piped; nothing is cut off but names, and those keep both of their ends.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kdaprof.analysis.ranks import RankRow
from kdaprof.analysis.strip import Strip
from kdaprof.analysis.tracereport import DeviceReport, TraceReport
from kdaprof.analysis.traceverdict import WORDS, next_step, overall, verdict_text
from kdaprof.report.labels import SEVERITY
from kdaprof.runs.units import format_fraction, format_ns

_STYLE = {"gpu": "bold green", "unknown": "bold yellow", "error": "bold red", "warn": "yellow", "info": "cyan"}
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LETTERS = {
    "sync": "s", "allocator": "a", "jit": "j", "dispatch": "d", "host_other": "h", "launch_call": "l",
    "launch_latency": "y", "device_wait": "w", "graph_gap": "g", "no_launch_record": "n", "unclassified": "u",
}  # fmt: skip
_ARGUMENTS = re.compile(r"(?<=>)\([^()]*(?:\([^()]*\)[^()]*)*\)$")
_NAME_WIDTH, _NARROW = 52, 100


def show_traces(
    console: Console, reports: Sequence[TraceReport], ranks: Sequence[RankRow] = (), *, top: int = 8
) -> None:
    """Print one or many analysed traces."""
    decision = overall(reports)
    for report in reports:
        _head(console, report)
    console.print(Text(verdict_text(reports, decision), style=_STYLE.get(decision.bound, "bold")))
    console.print(Text(f"next: {next_step(reports, decision)}"))
    if ranks:
        console.print()
        console.print(_ranks(ranks))
    for report in reports:
        if len(reports) > 1:
            console.print()
            console.print(Text(f"── {_base(report)}", style="bold"))
        for device in report.devices:
            _device(console, device, top)
        _findings(console, report)
        _notes(console, report)


def trace_markdown(reports: Sequence[TraceReport], ranks: Sequence[RankRow] = (), *, top: int = 8) -> str:
    """The same as Markdown: the verdict as text, the tables in a fenced block."""
    decision = overall(reports)
    stream = io.StringIO()
    console = Console(file=stream, width=120, highlight=False, emoji=False, markup=False, no_color=True)
    show_traces(console, reports, ranks, top=top)
    titles = ", ".join(_base(report) for report in reports)
    body = "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
    verdict = f"**{verdict_text(reports, decision)}**\n\nNext: {next_step(reports, decision)}"
    return f"# {titles}\n\n{verdict}\n\n```text\n{body}\n```\n"


def _base(report: TraceReport) -> str:
    return Path(report.source.path or "timeline").name


def _head(console: Console, report: TraceReport) -> None:
    source, quality = report.source, report.quality
    names = sorted({device.name for device in report.devices if device.name})
    parts = [
        _base(report),
        source.format,
        *names,
        f"{source.counts.kept:,} events",
        f"quality {quality.verdict}",
    ]
    if source.rank is not None:
        parts.insert(2, f"rank {source.rank}")
    console.print(Text(" · ".join(parts), style="dim"))


def _device(console: Console, device: DeviceReport, top: int) -> None:
    console.print()
    title = f"GPU {device.device}" + (f" ({device.name})" if device.name else "")
    span = device.span_ns or 1
    busy = device.busy
    facts = [
        f"span {format_ns(device.span_ns)}",
        f"busy {format_ns(device.busy_ns)} ({format_fraction(device.busy_ns / span)})",
        f"idle {format_ns(device.idle.total_ns)} ({format_fraction(device.idle.total_ns / span)})",
        f"kernels alone {format_ns(busy.kernel_busy_ns)}",
        f"copies and sets {format_ns(busy.copy_busy_ns)}",
    ]
    if busy.overlap_ns:
        facts.append(f"streams overlap {format_ns(busy.overlap_ns)}")
    if busy.copy_overlap_ns:
        facts.append(f"copies hidden behind kernels {format_ns(busy.copy_overlap_ns)}")
    console.print(Text(title, style="bold") + Text("  " + " · ".join(facts)))
    _strip(console, device.strip)
    names = max(_NAME_WIDTH - max(_NARROW - console.width, 0), 16)
    tables = (
        _classes(device),
        _steps(device, top),
        _phases(device, top, names),
        _launches(device, top),
        _operators(device, top, names),
        _kernels(device, top, names),
        _paths(device, names),
    )
    for table in tables:
        if table is not None:
            console.print(table)
    _queue(console, device)


def _strip(console: Console, strip: Strip) -> None:
    """Time from left to right: how busy each bin is, and below the class that holds most of its idle."""
    bars = "".join(_BLOCKS[min(8, round(share * 8))] for share in strip.busy)
    letters = "".join(_LETTERS[name] if name else "·" for name in strip.idle)
    used = ", ".join(f"{_LETTERS[name]} {WORDS[name]}" for name in dict.fromkeys(strip.idle) if name)
    console.print(Text(f"  busy  │{bars}│"))
    console.print(Text(f"  idle  │{letters}│"))
    console.print(Text(f"        {format_ns(strip.bin_ns)} each: {used or 'no idle'}", style="dim"))


def _table(title: str, *columns: str, text: int = 1) -> Table:
    """A table whose first `text` columns are words; figures stand at the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < text else "right", no_wrap=True)
    return table


def _classes(device: DeviceReport) -> Table:
    table = _table("Where the idle goes", "class", "", "time", "of idle", "of span", text=2)
    idle, span = device.idle.total_ns or 1, device.span_ns or 1
    for name, value in sorted(device.idle.by_class().items(), key=lambda item: -item[1]):
        if value:
            shares = (format_fraction(value / idle), format_fraction(value / span))
            table.add_row(WORDS[name], "█" * round(20 * value / idle), format_ns(value), *shares)
    causes = (
        ("drained by a synchronise", device.drained_by_sync_ns),
        ("starved (host late)", device.starved_ns),
        ("queued (launched in time)", device.queued_ns),
    )
    for name, value in causes:
        if value:
            shares = (format_fraction(value / idle), format_fraction(value / span))
            table.add_row(Text(f"cause: {name}", style="dim"), "", format_ns(value), *shares)
    return table


def _steps(device: DeviceReport, top: int) -> Table | None:
    if not device.steps:
        return None
    table = _table("Steps", "step", "host", "span", "busy", "idle", "lead", "most idle", "launches", "syncs")
    for step in device.steps[:top]:
        largest = step.idle.largest()
        table.add_row(
            step.name + ("*" if step.partial else ""),
            format_ns(step.host_ns),
            format_ns(step.span_ns),
            format_ns(step.busy_ns),
            format_fraction(step.idle_ns / step.span_ns) if step.span_ns else "—",
            format_ns(step.lead.total_ns) if step.lead.total_ns else "—",
            WORDS[largest] if largest else "—",
            f"{step.launches:,}",
            f"{step.synchronisations:,}",
        )
    _more(table, len(device.steps), top)
    table.caption_justify, table.caption_style = "left", "dim"
    table.caption = "lead: idle between the step before and its first kernel"
    if any(step.partial for step in device.steps):
        table.caption += "; * partial: cut off by the recording, or without device events"
    return table


def _phases(device: DeviceReport, top: int, names: int) -> Table | None:
    shown = [phase for phase in device.phases if phase.total_device_events or phase.total_launches]
    if not shown:
        return None
    table = _table("Phases (annotations)", "phase", "calls", "host", "busy", "idle", "launches", "kernel")
    for phase in shown[:top]:
        table.add_row(
            _middle(phase.name + (f" in {phase.parent}" if phase.parent else ""), names),
            f"{phase.calls:,}",
            format_ns(phase.total_host_ns),
            format_ns(phase.total_busy_ns),
            format_ns(phase.total_idle_ns),
            f"{phase.total_launches:,}",
            format_ns(phase.median_kernel_ns) if phase.median_kernel_ns is not None else "—",
        )
    _more(table, len(shown), top)
    rest = device.outside
    if rest.busy_ns or rest.idle_ns:
        figures = (format_ns(rest.busy_ns), format_ns(rest.idle_ns), f"{rest.launches:,}")
        table.add_row(Text("outside all", style="dim"), "", "", *figures, "")
    return table


def _launches(device: DeviceReport, top: int) -> Table | None:
    if not device.launches:
        return None
    table = _table("Launch calls", "API", "calls", "a step", "median", "p90", "total", "events")
    for row in device.launches[:top]:
        table.add_row(
            row.api,
            f"{row.calls:,}",
            f"{row.calls_per_step:,.0f}" if row.calls_per_step is not None else "—",
            format_ns(row.median_ns),
            format_ns(row.p90_ns),
            format_ns(row.total_ns),
            f"{row.device_events:,}",
        )
    _more(table, len(device.launches), top)
    return table


def _operators(device: DeviceReport, top: int, names: int) -> Table | None:
    if not device.operators:
        return None
    title = "Operators, by the idle before their kernels"
    table = _table(title, "operator", "calls", "launches", "idle", "busy", "host")
    for row in device.operators[:top]:
        times = (format_ns(row.idle_ns), format_ns(row.busy_ns), format_ns(row.host_ns))
        table.add_row(_middle(row.name, names), f"{row.calls:,}", f"{row.launches:,}", *times)
    _more(table, len(device.operators), top)
    return table


def _kernels(device: DeviceReport, top: int, names: int) -> Table | None:
    if not device.kernels:
        return None
    table = _table("Kernels and copies", "name", "calls", "median", "busy", "share")
    for row in device.kernels[:top]:
        share = format_fraction(row.busy_ns / (device.busy_ns or 1))
        name = _middle(_plain(row.name), names)
        table.add_row(name, f"{row.calls:,}", format_ns(row.median_ns), format_ns(row.busy_ns), share)
    _more(table, len(device.kernels), top)
    return table


def _paths(device: DeviceReport, names: int) -> Table | None:
    rows = [row for row in device.paths if row.region is None]
    if not rows:
        return None
    table = _table("What ran", "family", "events", "busy", "share", "for example")
    table.columns[4].justify = "left"
    for row in rows:
        figures = (f"{row.kernels:,}", format_ns(row.busy_ns), format_fraction(row.share))
        table.add_row(row.family, *figures, _middle(_plain(row.example), names))
    return table


def _queue(console: Console, device: DeviceReport) -> None:
    queue = device.queue
    if queue is None:
        return
    peak = max(queue.depth) or 1
    bars = "".join(_BLOCKS[min(8, -(-depth * 8 // peak))] for depth in queue.depth)
    delay, waiting, arriving = (
        format_ns(value) for value in (queue.delay_median_ns, queue.queueing_median_ns, queue.latency_median_ns)
    )
    console.print(Text("Launch queue", style="bold"))
    console.print(Text(f"  depth │{bars}│"))
    console.print(
        Text(f"        at most {queue.depth_max:,} waiting, none for {format_fraction(queue.empty_share)} of the time")
    )
    console.print(
        Text(f"        return of the call to start: {delay} (queueing {waiting}, latency {arriving}), medians")
    )


def _ranks(ranks: Sequence[RankRow]) -> Table:
    table = _table("Ranks", "rank", "span", "busy", "idle", "collectives", "waiting in them", "")
    for row in ranks:
        table.add_row(
            str(row.rank),
            format_ns(row.span_ns),
            format_ns(row.busy_ns),
            format_fraction(row.idle_ns / row.span_ns) if row.span_ns else "—",
            format_ns(row.collective_ns),
            "—" if row.collective_wait_ns is None else format_ns(row.collective_wait_ns),
            "straggler: the others wait for it" if row.straggler else "",
        )
    return table


def _findings(console: Console, report: TraceReport) -> None:
    if not report.findings:
        return
    console.print(Text("Findings", style="bold"))
    for finding in report.findings:
        line = Text("  ")
        line.append(f"{SEVERITY[finding.severity]} ", style=_STYLE[finding.severity])
        line.append(f"{finding.id}: {finding.text}")
        console.print(line)
        console.print(Text(f"      next: {finding.next}", style="dim"))


def _notes(console: Console, report: TraceReport) -> None:
    notes = report.quality.notes
    if notes:
        console.print(Text(f"Trace quality: {report.quality.verdict}", style="bold yellow"))
        for note in notes:
            console.print(Text(f"  {note}"))


def _more(table: Table, n: int, top: int) -> None:
    if n > top:
        table.add_row(Text(f"… {n - top:,} more (--top {n})", style="dim"))


def _plain(name: str) -> str:
    """A kernel's name without its return type, common namespaces and argument list."""
    return _ARGUMENTS.sub("", name.removeprefix("void ").replace("at::native::", "")) or name


def _middle(text: str, width: int) -> str:
    """A name cut in its middle, so that what tells it apart (often the end) stays."""
    if len(text) <= width:
        return text
    keep = width - 1
    return text[: keep - keep // 3] + "…" + text[-(keep // 3) :]
