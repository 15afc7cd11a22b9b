"""Reads the CSV of Nsight Compute: `--page raw` (a launch a row, units in the second line) or details (a metric a row).

Lines of the tool (`==PROF==`) and of the profiled command may stand between. A value whose unit is unknown is left
out with that reason: a wrong power of a thousand is worse than none. Columns and units: Nsight Compute CLI guide.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from kdaprof.errors import BadFileError, UnavailableError

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NvtxRange:
    """A start/end range that was open around a launch: its id in that process, domain and name."""

    id: str
    domain: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NcuKernel:
    """One launch. Times in ns, memory in bytes, shares 0…1; None where the file has no such figure (see `missing`).

    `dram_share` and `sm_share` are of the peak that could be sustained; `occupancy` is that which was reached, of
    all warps an SM can hold, `occupancy_limit` what registers, shared memory and block size allow. `local_*_bytes`
    are bytes of local memory that loads and stores asked for: spilled registers, mostly.
    """

    index: int
    name: str
    process: str | None
    device: str | None
    capability: str | None
    stream: str | None
    grid: str | None
    block: str | None
    ranges: tuple[NvtxRange, ...]
    duration_ns: float | None
    dram_read_bytes: float | None
    dram_write_bytes: float | None
    dram_share: float | None
    sm_share: float | None
    occupancy: float | None
    occupancy_limit: float | None
    registers: float | None
    local_load_bytes: float | None
    local_store_bytes: float | None
    missing: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NcuReport:
    """The launches of a file in its order, what the tool itself said of trouble, and how many lines were cut short."""

    kernels: tuple[NcuKernel, ...]
    notes: tuple[str, ...]
    cut: int = 0


class CountersRefusedError(UnavailableError):
    """The driver lets only administrators read performance counters."""


class NoKernelsError(BadFileError):
    """Nsight Compute ran and profiled no launch."""


class _Field(NamedTuple):
    name: str
    metrics: tuple[str, ...]
    units: Mapping[str, float]


_SECONDS = {"nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_BYTES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9}
_SHARE = {"%": 0.01}
_COUNT = {"register/thread": 1.0, "": 1.0}

FIELDS: Final = (
    _Field("duration_ns", ("gpu__time_duration.sum", "Duration"), _SECONDS),
    _Field("dram_read_bytes", ("dram__bytes_read.sum", "dram__bytes_op_read.sum"), _BYTES),
    _Field("dram_write_bytes", ("dram__bytes_write.sum", "dram__bytes_op_write.sum"), _BYTES),
    _Field("dram_share", ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "DRAM Throughput"), _SHARE),
    _Field("sm_share", ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "Compute (SM) Throughput"), _SHARE),
    _Field("occupancy", ("sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy"), _SHARE),
    _Field("occupancy_limit", ("sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy"), _SHARE),
    _Field("registers", ("launch__registers_per_thread", "Registers Per Thread"), _COUNT),
    _Field("local_load_bytes", ("l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum",), _BYTES),
    _Field("local_store_bytes", ("l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum",), _BYTES),
)
METRICS: Final = tuple(field.metrics[0] for field in FIELDS)
"""What to ask `ncu --metrics` for."""

_TROUBLE = re.compile(r"^==(ERROR|WARNING)== *(.*)$")
# `1:kdaprof:fwd:int64:0:ARGB:0xff008000:registered:fwd`: six fields follow the name; a name may hold colons itself.
_RANGE = re.compile(r'"?(\d+):([^:"]*):((?:[^"])*?)((?::[^:"]*){6})"?(?:\s|$)')
_REFUSED = (
    "reading performance counters is refused (ERR_NVGPUCTRPERM): run as root or in a container with "
    "--cap-add=SYS_ADMIN, or let everybody read them: "
    "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then reload the driver "
    "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
)


def read(path: Path) -> NcuReport:
    """Read a file. Raises `BadFileError` for what is no such CSV, `NoKernelsError`, `CountersRefusedError`."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise BadFileError(f"{path}: cannot read ({error.strerror or error})") from error
    return parse(text, str(path))


def parse(text: str, name: str) -> NcuReport:
    """The same from the file's text; `name` is for messages."""
    lines = text.splitlines()
    said = [match[2] for line in lines if (match := _TROUBLE.match(line))]
    if "ERR_NVGPUCTRPERM" in text:
        raise CountersRefusedError(f"{name}: {_REFUSED}")
    start = next((i for i, line in enumerate(lines) if _is_header(line)), None)
    if start is None:
        if any("No kernels were profiled" in line for line in said):
            raise NoKernelsError(f"{name}: no launch was profiled: {_first(said)}; {_NO_LAUNCH}")
        why = f" (the tool said: {_first(said)})" if said else ""
        raise BadFileError(
            f'{name}: no CSV of Nsight Compute: no line begins with "ID",{why}; make one with `ncu --csv`'
        )
    table, cut = _rows(lines[start:])
    kernels = tuple(_wide(table) if "Metric Name" not in _cells(lines[start]) else _long(table))
    if not kernels and cut:
        raise BadFileError(f"{name}: damaged: none of the {cut} lines below the header is whole; make it again")
    if not kernels:
        raise NoKernelsError(f"{name}: a header and no launch below it; {_NO_LAUNCH}")
    return NcuReport(kernels, tuple(dict.fromkeys(said)), cut)


_NO_LAUNCH = "did a range of that name run, and on the GPU?"


def _first(said: list[str]) -> str:
    return said[0].rstrip(".") if said else "nothing"


def _cells(line: str) -> list[str]:
    """The cells of a line; none where it is no CSV (a field beyond the reader's limit: a file that lost its ends)."""
    try:
        return next(csv.reader([line]))
    except csv.Error:
        return []


def _is_header(line: str) -> bool:
    return line.startswith(('"ID",', "ID,")) and {"ID", "Kernel Name"} <= set(_cells(line))


def _rows(lines: Iterable[str]) -> tuple[list[Row], int]:
    """Rows as mappings, and how many were cut short: a row that is not whole could hold half a number.

    Lines of the tool, of the command and repeated headers are left out.
    """
    header: list[str] = []
    end = ""
    rows: list[Row] = []
    cut = 0
    for line in lines:
        if _is_header(line):
            header, end = _cells(line), line[-1] if line.endswith('"') else ""
        elif re.match(r'"\d*",|\d+,|,', line):
            cells = _cells(line)
            whole = len(cells) == len(header) and line.count('"') % 2 == 0 and line.endswith(end)
            cut += not whole
            rows += [dict(zip(header, cells, strict=True))] if whole else []
    return rows, cut


def _wide(table: Sequence[Row]) -> Iterator[NcuKernel]:
    units: Row = {}
    for row in table:
        if not row.get("ID"):
            units = row
        else:
            yield _kernel(row, {metric: (units.get(metric, ""), row[metric]) for metric in row})


def _long(table: Sequence[Row]) -> Iterator[NcuKernel]:
    """Rows of one launch follow each other: its metrics, and rules that advise, which have none."""
    launches: dict[tuple[str, str], tuple[Row, dict[str, tuple[str, str]]]] = {}
    for row in table:
        first, metrics = launches.setdefault((row.get("Process ID", ""), row["ID"]), (row, {}))
        if row.get("Metric Name"):
            metrics[row["Metric Name"]] = (row.get("Metric Unit", ""), row.get("Metric Value", ""))
    for first, metrics in launches.values():
        yield _kernel(first, metrics)


def _kernel(row: Row, metrics: Mapping[str, tuple[str, str]]) -> NcuKernel:
    values: dict[str, float | None] = {}
    missing: list[tuple[str, str]] = []
    for field in FIELDS:
        value, reason = _value(field, metrics)
        values[field.name] = value
        if reason:
            missing.append((field.name, reason))
    return NcuKernel(
        index=int(row["ID"]) if row["ID"].isdecimal() else -1,
        name=row["Kernel Name"],
        process=row.get("Process ID") or None,
        device=row.get("device__attribute_display_name") or row.get("Device") or None,
        capability=row.get("CC") or None,
        stream=row.get("Stream") or None,
        grid=row.get("Grid Size") or row.get("launch__grid_size") or None,
        block=row.get("Block Size") or row.get("launch__block_size") or None,
        ranges=tuple(_ranges(row)),
        missing=tuple(missing),
        **values,
    )


def _value(field: _Field, metrics: Mapping[str, tuple[str, str]]) -> tuple[float | None, str | None]:
    for metric in field.metrics:
        if metric not in metrics:
            continue
        unit, text = metrics[metric]
        factor = field.units.get(unit)
        if factor is None:
            return None, f"unit {unit!r} of {metric} is unknown"
        number = _number(text)
        return (None, f"{metric} is {text!r}") if number is None else (number * factor, None)
    return None, f"the file has no {field.metrics[0]}"


def _number(text: str) -> float | None:
    """`1,048,576`, `0.5`, and what ncu writes under another locale: `1.048.576`, `0,5`."""
    digits = text.strip().replace("\u202f", "").replace(" ", "").replace("'", "")
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", digits):
        digits = digits.replace(",", "")
    elif re.fullmatch(r"-?\d{1,3}(\.\d{3}){2,}(,\d+)?", digits) or re.fullmatch(r"-?\d{1,3}(\.\d{3})+,\d+", digits):
        digits = digits.replace(".", "").replace(",", ".")
    elif re.fullmatch(r"-?\d+,\d+", digits):
        digits = digits.replace(",", ".")
    number = float(digits) if re.fullmatch(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", digits) else math.inf
    return number if math.isfinite(number) else None


def _ranges(row: Row) -> Iterator[NvtxRange]:
    for column, text in row.items():
        if "Start/Stop_Range" in column and text:
            for match in _RANGE.finditer(text):
                yield NvtxRange(id=match[1], domain=match[2], name=match[3])
