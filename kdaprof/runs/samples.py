"""Samples: one timed execution of a cell, kept raw, and the Parquet part that holds a cell's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa

from kdaprof.errors import BadFileError
from kdaprof.runs.tables import read_table, write_rows, write_table

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
    write_rows(path, _SCHEMA, samples)


def sample_table(columns: Mapping[str, Sequence[object]]) -> pa.Table:
    """Samples given by column, all of one length; columns that are left out are absent in every row."""
    count = len(next(iter(columns.values())))
    return pa.table([columns.get(f.name) or pa.nulls(count, f.type) for f in _SCHEMA], schema=_SCHEMA)


def write_sample_tables(path: Path, tables: Sequence[pa.Table]) -> None:
    """Write one Parquet part atomically: the rows of `sample_table`s, one behind the other."""
    write_table(path, pa.concat_tables(tables))


def read_samples(path: Path) -> tuple[Sample, ...]:
    """Read one Parquet part; BadFileError with path, reason and way out."""
    table = read_table(path, SCHEMA_NAME, SCHEMA_VERSION)
    absent = [name for name in _SCHEMA.names if name not in table.column_names]
    if absent:
        raise BadFileError(f"{path}: columns missing: {', '.join(absent)}")
    rows: Iterable[dict[str, object]] = table.select(_SCHEMA.names).to_pylist()
    return tuple(Sample(**row) for row in rows)  # type: ignore[arg-type]
