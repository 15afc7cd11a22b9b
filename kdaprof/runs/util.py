"""`gpu_util.parquet`: sampled readings of the GPU, one row a field and moment, stale and missing ones marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from kdaprof.runs.tables import read_table, write_rows

UTIL_FILE = "gpu_util.parquet"
SCHEMA_NAME = "kdaprof.gpu_util"
SCHEMA_VERSION = 1

# Fields of a watch that carry a name: a process's memory and SM share, a clock event reason that held.
PROCESS_BYTES, PROCESS_UTIL = "used_bytes", "util"
REASON_PREFIX = "reason:"
LATENESS = "lateness_ns"

UTIL_SCHEMA = pa.schema(
    [
        pa.field("t_ns", pa.int64(), nullable=False),
        pa.field("uuid", pa.string()),
        pa.field("field", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
        pa.field("stale", pa.bool_(), nullable=False),
        pa.field("missing", pa.string()),
    ],
    metadata={"kdaprof.schema": SCHEMA_NAME, "kdaprof.version": str(SCHEMA_VERSION)},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilReading:
    """One field of a GPU at one moment of CLOCK_MONOTONIC: `value` in base units (`util` a fraction), or why not.

    `stale` marks a repeat of the same NVML window, which is not an observation of its own.
    """

    t_ns: int
    uuid: str | None
    field: str
    value: float | None
    stale: bool
    missing: str | None


def process_field(pid: int, what: str) -> str:
    """`pid:4321:used_bytes`."""
    return f"pid:{pid}:{what}"


def process_of(field: str) -> tuple[int, str] | None:
    """Process id and what is told of it; None for a field of the card itself."""
    parts = field.split(":")
    return (int(parts[1]), parts[2]) if len(parts) == 3 and parts[0] == "pid" else None


def write_util(path: Path, readings: Sequence[UtilReading]) -> None:
    """Write the file atomically."""
    write_rows(path, UTIL_SCHEMA, readings)


def read_util(path: Path) -> tuple[UtilReading, ...]:
    """Read the file; () when the run has none. BadFileError with path and reason."""
    if not path.exists():
        return ()
    table = read_table(path, SCHEMA_NAME, SCHEMA_VERSION)
    return tuple(UtilReading(**row) for row in table.to_pylist())
