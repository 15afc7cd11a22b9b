"""An analysed trace on a terminal: verdict first, then where the time goes, then who causes it.

Reads without colour and when piped; nothing is cut off but names, and those keep both of their ends.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kdaprof.analysis.trace.devices import DeviceReport, TraceReport
from kdaprof.analysis.trace.ranks import RankRow
from kdaprof.analysis.trace.strip import Strip
from kdaprof.analysis.trace.verdict import WORDS, next_step, overall, verdict_text
from kdaprof.report.labels import SEVERITY
from kdaprof.report.trace_tables import (
    class_table,
    kernels_table,
    launches_table,
    operators_table,
    paths_table,
    phases_table,
    ranks_table,
    steps_table,
)
from kdaprof.runs.units import format_fraction, format_ns

_STYLE = {"gpu": "bold green", "unknown": "bold yellow", "error": "bold red", "warn": "yellow", "info": "cyan"}
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LETTERS = {
    "sync": "s", "allocator": "a", "jit": "j", "dispatch": "d", "host_other": "h", "launch_call": "l",
    "launch_latency": "y", "device_wait": "w", "graph_gap": "g", "no_launch_record": "n", "unclassified": "u",
}  # fmt: skip
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
        console.print(ranks_table(ranks))
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
        class_table(device),
        steps_table(device, top),
        phases_table(device, top, names),
        launches_table(device, top),
        operators_table(device, top, names),
        kernels_table(device, top, names),
        paths_table(device, names),
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
