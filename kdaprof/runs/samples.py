"""Samples: one timed execution of a cell, kept raw, and the Parquet part that holds a cell's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kdaprof.errors import BadFileError
from kdaprof.runs.atomic import write_with

SCHEMA_NAME = "kdaprof.samples"
SCHEMA_VERSION = 1

# How an execution was watched. Wall and host come from `unprofiled` alone; `events` repeats carry CUDA events;
# `pipelined` samples are bursts of `calls` calls with one synchronise; `alloc` repeats read the allocator.
REPEATS = (
    "unprofiled",
    "events",
    "pipelined",
    "alloc",
    "profiled-cuda",
    "profiled-full",
    "util",
    "cold",
    "input-copy",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One timed execution (or burst of `calls` executions). Times in integer ns of CLOCK_MONOTONIC; None is absent."""

    cell: str
    repeat: str
    round: int
    index: int
    t_ns: int
    step: int | None = None
    calls: int = 1
    host_ns: int | None = None
    wall_ns: int | None = None
    gpu_span_ns: int | None = None
    allocs: int | None = None
    alloc_bytes: int | None = None
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    sm_clock_hz: int | None = None
    load1: float | None = None


_TEXT = ("cell", "repeat")
_SCHEMA = pa.schema(
    [
        pa.field(
            f.name,
            pa.string() if f.name in _TEXT else pa.float64() if f.name == "load1" else pa.int64(),
            nullable=f.name not in (*_TEXT, "round", "index", "t_ns", "calls"),
        )
        for f in fields(Sample)
    ],
    metadata={"kdaprof.schema": SCHEMA_NAME, "kdaprof.version": str(SCHEMA_VERSION)},
)


def write_samples(path: Path, samples: Sequence[Sample]) -> None:
    """Write one Parquet part atomically."""
    columns = {name: [getattr(sample, name) for sample in samples] for name in _SCHEMA.names}
    table = pa.table(columns, schema=_SCHEMA)
    write_with(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def read_samples(path: Path) -> tuple[Sample, ...]:
    """Read one Parquet part; BadFileError with path, reason and way out."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise BadFileError(f"{path}: not a readable Parquet file ({_first_line(error)})") from error
    check_version(path, table.schema.metadata, SCHEMA_NAME, SCHEMA_VERSION)
    absent = [name for name in _SCHEMA.names if name not in table.column_names]
    if absent:
        raise BadFileError(f"{path}: columns missing: {', '.join(absent)}")
    rows: Iterable[dict[str, object]] = table.select(_SCHEMA.names).to_pylist()
    return tuple(Sample(**row) for row in rows)  # type: ignore[arg-type]


def check_version(path: Path, metadata: dict[bytes, bytes] | None, name: str, version: int) -> None:
    """Refuse a Parquet file of another kind, or one written by a newer kdaprof."""
    found = (metadata or {}).get(b"kdaprof.schema", b"").decode()
    if found != name:
        raise BadFileError(f"{path}: holds {found or 'no kdaprof schema'!r}, expected {name!r}")
    written = int((metadata or {}).get(b"kdaprof.version", b"0"))
    if written > version:
        raise BadFileError(
            f"{path}: schema {name}/{written} is newer than this kdaprof reads ({version}): upgrade kdaprof"
        )


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
