"""The tables of an analysed trace: one look for all, words at the left, figures at the right."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from kdaprof.analysis.trace.devices import DeviceReport
from kdaprof.analysis.trace.ranks import RankRow
from kdaprof.analysis.trace.verdict import WORDS
from kdaprof.runs.units import format_fraction, format_ns

_ARGUMENTS = re.compile(r"(?<=>)\([^()]*(?:\([^()]*\)[^()]*)*\)$")


def _table(title: str, *columns: str, text: int = 1) -> Table:
    """A table whose first `text` columns are words; figures stand at the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < text else "right", no_wrap=True)
    return table


def class_table(device: DeviceReport) -> Table:
    """Idle by class and by cause, with shares of the idle and of the span."""
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


def steps_table(device: DeviceReport, top: int) -> Table | None:
    """Steps with host time, device span, idle and lead; None without steps."""
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


def phases_table(device: DeviceReport, top: int, names: int) -> Table | None:
    """Annotations with launches or device events, and the remainder; None without any."""
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


def launches_table(device: DeviceReport, top: int) -> Table | None:
    """Launch calls by API; None without any."""
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


def operators_table(device: DeviceReport, top: int, names: int) -> Table | None:
    """Operators by the idle before their kernels; None without any."""
    if not device.operators:
        return None
    title = "Operators, by the idle before their kernels"
    table = _table(title, "operator", "calls", "launches", "idle", "busy", "host")
    for row in device.operators[:top]:
        times = (format_ns(row.idle_ns), format_ns(row.busy_ns), format_ns(row.host_ns))
        table.add_row(_middle(row.name, names), f"{row.calls:,}", f"{row.launches:,}", *times)
    _more(table, len(device.operators), top)
    return table


def kernels_table(device: DeviceReport, top: int, names: int) -> Table | None:
    """Device events by name, longest busy first; None without any."""
    if not device.kernels:
        return None
    table = _table("Kernels and copies", "name", "calls", "median", "busy", "share")
    for row in device.kernels[:top]:
        share = format_fraction(row.busy_ns / (device.busy_ns or 1))
        name = _middle(_plain(row.name), names)
        table.add_row(name, f"{row.calls:,}", format_ns(row.median_ns), format_ns(row.busy_ns), share)
    _more(table, len(device.kernels), top)
    return table


def paths_table(device: DeviceReport, names: int) -> Table | None:
    """Families of kernels on the whole device; None without any."""
    rows = [row for row in device.paths if row.region is None]
    if not rows:
        return None
    table = _table("What ran", "family", "events", "busy", "share", "for example")
    table.columns[4].justify = "left"
    for row in rows:
        figures = (f"{row.kernels:,}", format_ns(row.busy_ns), format_fraction(row.share))
        table.add_row(row.family, *figures, _middle(_plain(row.example), names))
    return table


def ranks_table(ranks: Sequence[RankRow]) -> Table:
    """Ranks, their waits in collectives, and the straggler."""
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
