"""One file of the history: the figures of one run as rows of a Parquet file, one a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from kdaprof.errors import BadFileError
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import Fact, Reason, fact_id
from kdaprof.runs.tables import read_table, write_rows

SCHEMA_NAME = "kdaprof.history"
SCHEMA_VERSION = 1

Row = dict[str, Any]  # of a Parquet table; `Entry` stands on both sides of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The run that a figure is of, and what its value depends on. `directory` is None for an anonymous run."""

    run: str
    recorded_unix_ns: int
    started_unix_ns: int
    complete: bool
    tool: str
    commit: str | None
    dirty: bool | None
    machine: str
    torch: str | None
    triton: str | None
    driver: str | None
    directory: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One figure of one cell of one run."""

    stamp: Stamp
    cell: str
    name: str
    fact: Fact

    @property
    def id(self) -> str:
        """The fact id."""
        return fact_id(self.stamp.run, self.cell, self.name)


_INTEGER, _TEXT, _REAL, _TEXTS = pa.int64(), pa.string(), pa.float64(), pa.list_(pa.string())
_KEY_PARTS = ("workload", "path", "context", "mode", "phase", "shape", "dtype")
_COLUMNS: dict[str, Any] = {
    "run": _TEXT,
    "recorded_unix_ns": _INTEGER,
    "started_unix_ns": _INTEGER,
    "complete": pa.bool_(),
    "tool": _TEXT,
    "commit": _TEXT,
    "dirty": pa.bool_(),
    "machine": _TEXT,
    "torch": _TEXT,
    "triton": _TEXT,
    "driver": _TEXT,
    "directory": _TEXT,
    "cell": _TEXT,
    **dict.fromkeys(_KEY_PARTS, _TEXT),
    "fact": _TEXT,
    "value": _REAL,
    "unit": _TEXT,
    "n": _INTEGER,
    "min": _REAL,
    "max": _REAL,
    "p10": _REAL,
    "p90": _REAL,
    "ci_low": _REAL,
    "ci_high": _REAL,
    "provenance": _TEXT,
    "sources": _TEXTS,
    "quotable": pa.bool_(),
    "rules": _TEXTS,
    "reasons": _TEXTS,
    "missing": _TEXT,
    "detail": _TEXT,
}
_SCHEMA = pa.schema(
    list(_COLUMNS.items()), metadata={"kdaprof.schema": SCHEMA_NAME, "kdaprof.version": str(SCHEMA_VERSION)}
)


def to_row(entry: Entry, key: CellKey) -> Row:
    """One entry as columns; those of its key are for readers of the folder, the id says the same."""
    fact = entry.fact
    low, high = fact.ci95 or (None, None)
    return {
        **{field.name: getattr(entry.stamp, field.name) for field in fields(Stamp)},
        **{part: getattr(key, part) for part in _KEY_PARTS},
        "shape": key.extents,
        "cell": entry.cell,
        "fact": entry.name,
        **{field.name: getattr(fact, field.name) for field in fields(Fact) if field.name in _COLUMNS},
        "sources": list(fact.sources),
        "ci_low": low,
        "ci_high": high,
        "rules": [reason.rule for reason in fact.reasons],
        "reasons": [reason.text for reason in fact.reasons],
    }


def from_row(row: Row) -> Entry:
    """The entry of a row."""
    low, high = row["ci_low"], row["ci_high"]
    same = {field.name: row[field.name] for field in fields(Fact) if field.name in _COLUMNS}
    reasons = zip(row["rules"], row["reasons"], strict=True)
    changed = {
        "sources": tuple(row["sources"]),
        "ci95": None if low is None or high is None else (low, high),
        "reasons": tuple(Reason(rule=rule, text=text) for rule, text in reasons),
    }
    return Entry(
        stamp=Stamp(**{field.name: row[field.name] for field in fields(Stamp)}),
        cell=row["cell"],
        name=row["fact"],
        fact=Fact(**(same | changed)),
    )


def read_rows(path: Path) -> list[Row]:
    """The rows of one file; BadFileError with path, reason and way out."""
    table = read_table(path, SCHEMA_NAME, SCHEMA_VERSION)
    absent = [name for name in _SCHEMA.names if name not in table.column_names]
    if absent:
        raise BadFileError(f"{path}: columns missing: {', '.join(absent)}; move it away and record the run again")
    rows: list[Row] = table.select(_SCHEMA.names).to_pylist()
    return rows


def write_file(path: Path, rows: Sequence[Row]) -> None:
    """Write one file atomically."""
    write_rows(path, _SCHEMA, [SimpleNamespace(**row) for row in rows])
