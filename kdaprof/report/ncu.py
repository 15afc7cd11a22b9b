"""What Nsight Compute counted, on a terminal: bytes beside the cost model's, then a kernel a row."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kdaprof.analysis.ncu import NO_PHASE, KernelRow, NcuAnalysis, PhaseRow
from kdaprof.report.tables import DASH
from kdaprof.runs.units import format_bytes, format_fraction, format_ns, format_number, format_rate
from kdaprof.timeline.ncu_csv import NcuReport

_WIDE = 110
_CACHE = {
    "flush": "The L2 was flushed before each pass: every kernel finds it cold, also what the kernel before it wrote.",
    "keep": "The L2 was kept between passes: a kernel may find what its own earlier pass left there.",
    None: "Whether the L2 was flushed between passes (ncu --cache-control) is not in the file.",
}
_WRITES = "Writes that are still in the L2 when a kernel ends are not counted: up to its size, they may be missing."


def show_ncu(console: Console, report: NcuReport, found: NcuAnalysis, *, cell: str | None, cache: str | None) -> None:
    """Print both tables, and what must be known to read them."""
    launches = len(report.kernels)
    devices = sorted({kernel.device for kernel in report.kernels if kernel.device})
    head = f"{launches} {'launch' if launches == 1 else 'launches'} counted by Nsight Compute"
    _line(console, " · ".join([head, *(d for d in devices if not d.isdecimal())]), "bold")
    if cell:
        _line(console, cell, "dim")
    console.print()
    console.print(_phases(found))
    _line(console, "model: what this path lists to read and write · least: inputs and outputs once", "dim")
    for row in found.phases:
        if row.model_missing:
            _line(console, f"{row.phase}: no bytes of the cost model: {row.model_missing}", "dim")
    for phase in found.phases:
        console.print()
        console.print(_kernels(phase.phase, [row for row in found.kernels if row.phase == phase.phase], console.width))
    _line(console, "peak: of memory's sustained rate · warps: occupancy reached / allowed", "dim")
    _line(console, "regs: a thread · local: bytes of local memory, spilled registers mostly", "dim")
    console.print()
    notes = [_CACHE[cache], _WRITES, *_missing(report), *(f"ncu: {note}" for note in report.notes)]
    if report.cut:
        notes.append(f"{report.cut} lines of the file are cut short and left out: it is not whole.")
    if any(row.phase == NO_PHASE for row in found.phases):
        notes.append("Launches without a range: the file was made without --nvtx, or the kernels lie outside ranges.")
    for note in notes:
        _line(console, note, "dim")


def _phases(found: NcuAnalysis) -> Table:
    title = "Device memory a call, measured beside the cost model's"
    table = _table(title, "phase", "launches", "time", "read", "written", "sum", "model", "× model", "× least")
    for row in found.phases:
        table.add_row(
            row.phase,
            _launches(row),
            _ns(row.duration_ns),
            _bytes(row.read_bytes),
            _bytes(row.write_bytes),
            _bytes(row.dram_bytes),
            _bytes(row.path_bytes),
            _times(row.of_path),
            _times(row.of_compulsory),
        )
    return table


def _kernels(phase: str, rows: Sequence[KernelRow], width: int) -> Table:
    wide = width >= _WIDE
    columns = ("time", "read", "written", *(("rate", "SM") if wide else ()), "peak", "warps", "regs", "local")
    table = _table(f"Kernels of {phase}", "kernel", *columns)
    for row in rows:
        rate = DASH if row.dram_bytes_per_s is None else format_rate(row.dram_bytes_per_s, "B/s")
        table.add_row(
            _short(row.name, max(20, width - (78 if wide else 54))) + (f" ×{row.launches}" if row.launches > 1 else ""),
            _ns(row.duration_ns),
            _bytes(row.dram_read_bytes),
            _bytes(row.dram_write_bytes),
            *((rate, _share(row.sm_share)) if wide else ()),
            _share(row.dram_share),
            _warps(row),
            DASH if row.registers is None else str(row.registers),
            _local(row),
        )
    return table


def _line(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style), soft_wrap=True)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    return table


def _launches(row: PhaseRow) -> str:
    return str(row.launches) if row.calls == 1 else f"{row.launches} in {row.calls} calls"


def _ns(value: float | None) -> str:
    return DASH if value is None else format_ns(value)


def _bytes(value: float | None) -> str:
    return DASH if value is None else format_bytes(value)


def _share(value: float | None) -> str:
    return DASH if value is None else format_fraction(value)


def _times(value: float | None) -> str:
    return DASH if value is None else format_number(value)


def _warps(row: KernelRow) -> str:
    if row.occupancy is None:
        return DASH
    reached = format_fraction(row.occupancy)
    return reached if row.occupancy_limit is None else f"{reached[:-2]}/{format_fraction(row.occupancy_limit)}"


def _local(row: KernelRow) -> str:
    if row.spills is None:
        return DASH
    return _bytes((row.local_load_bytes or 0.0) + (row.local_store_bytes or 0.0)) if row.spills else "none"


def _short(name: str, width: int) -> str:
    """Both ends of a long name: templates differ at the end as often as at the begin."""
    bare = name.split("(", maxsplit=1)[0] if len(name) > width else name
    return bare if len(bare) <= width else f"{bare[: width // 2]}…{bare[-(width - width // 2 - 1) :]}"


def _missing(report: NcuReport) -> list[str]:
    reasons = {f"no {field}: {reason}" for kernel in report.kernels for field, reason in kernel.missing}
    return sorted(reasons)
