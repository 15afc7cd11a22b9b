"""The record of figures over time: a Parquet folder in the store, one file a run, so that two writers never clash.

Append-only: a run that is derived again otherwise (a newer kdaprof, a run that was partial) gets a further file, and
the one written last speaks for it. `pandas.read_parquet(".kdaprof/history")` reads the whole folder.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from kdaprof.errors import BadFileError
from kdaprof.runs.cells import CellKey
from kdaprof.runs.codec import read_document
from kdaprof.runs.environment import Environment
from kdaprof.runs.facts import Fact, Reason, fact_id
from kdaprof.runs.place import HISTORY_FOLDER
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import RunResults
from kdaprof.runs.store import RUN_FILE, read_results
from kdaprof.runs.tables import read_table, write_rows

SCHEMA_NAME = "kdaprof.history"
SCHEMA_VERSION = 1


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


def machine_of(env: Environment) -> str:
    """`NVIDIA H200 · AMD EPYC 9654, 16 cores`: what a time depends on, without what names one box."""
    gpu = env.gpu.name if env.gpu else "no GPU"
    cores = f"{env.host.cores_total} cores" if env.host.cores_total else None
    return " · ".join((gpu, ", ".join(part for part in (env.host.cpu_model, cores) if part) or env.host.machine))


def record_run(store: Path, run_path: Path) -> bool:
    """Add the figures stored beside a run to the history; False when they are there already. Cheap: reads no samples.

    Errors: BadFileError for a run without readable figures; TargetError when the store cannot be written.
    """
    record = read_document(run_path / RUN_FILE, "run-record", RunRecord)
    return record_figures(store, record, read_results(run_path), run_path)


def record_figures(
    store: Path,
    record: RunRecord,
    results: RunResults,
    run_path: Path,
    *,
    clock: Callable[[], int] = time.time_ns,
) -> bool:
    """Add derived figures to the history; False, and nothing is written, when it holds these very ones already."""
    now = clock()
    rows = [_row(entry, key) for entry, key in _entries(record, results, run_path, now)]
    before = _newest(path for path in _files(store) if _name(path)[0] == record.run)
    known = before.get((record.run, record.started_unix_ns), [])
    if [_content(row) for row in known] == [_content(row) for row in rows]:
        return False
    name = f"{record.run}.{now}-{secrets.token_hex(2)}.parquet"
    write_rows(store / HISTORY_FOLDER / name, _SCHEMA, [SimpleNamespace(**row) for row in rows])
    return True


def read_history(store: Path) -> tuple[Entry, ...]:
    """The figures of every run, each run as it was recorded last, oldest run first.

    Errors: BadFileError with path, reason and way out.
    """
    entries = (_entry(row) for rows in _newest(_files(store)).values() for row in rows)
    return tuple(sorted(entries, key=lambda entry: (entry.stamp.started_unix_ns, entry.stamp.run)))


def sources_of(entries: Iterable[Entry]) -> dict[str, tuple[str, ...]]:
    """What each figure of the history was made from, by fact id."""
    return {entry.id: entry.fact.sources for entry in entries if entry.fact.value is not None}


def _entries(record: RunRecord, results: RunResults, run_path: Path, now: int) -> Iterator[tuple[Entry, CellKey]]:
    env = record.environment
    stamp = Stamp(
        run=record.run,
        recorded_unix_ns=now,
        started_unix_ns=record.started_unix_ns,
        complete=record.complete,
        tool=record.tool,
        commit=env.git_commit,
        dirty=env.git_dirty,
        machine=machine_of(env),
        torch=env.version("torch"),
        triton=env.version("triton"),
        driver=env.version("driver"),
        # A run that was made anonymous stays so: where it lies is not written down either.
        directory=str(run_path.resolve()) if env.cwd is not None else None,
    )
    keys = {cell.id: cell.key for cell in record.cells}
    for cell in results.cells:
        for name, fact in cell.facts.items():
            yield Entry(stamp=stamp, cell=cell.id, name=name, fact=fact), keys[cell.id]


def _row(entry: Entry, key: CellKey) -> dict[str, Any]:
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


def _entry(row: dict[str, Any]) -> Entry:
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


def _read(path: Path) -> list[dict[str, Any]]:
    table = read_table(path, SCHEMA_NAME, SCHEMA_VERSION)
    absent = [name for name in _SCHEMA.names if name not in table.column_names]
    if absent:
        raise BadFileError(f"{path}: columns missing: {', '.join(absent)}; move it away and record the run again")
    rows: list[dict[str, Any]] = table.select(_SCHEMA.names).to_pylist()
    return rows


def _content(row: dict[str, Any]) -> dict[str, Any]:
    """Everything but when it was recorded, and where the run lay then."""
    return {name: value for name, value in row.items() if name not in {"recorded_unix_ns", "directory"}}


def _files(store: Path) -> list[Path]:
    return list((store / HISTORY_FOLDER).glob("[!.]*.parquet"))


def _newest(paths: Iterable[Path]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The rows that speak for each run. A run is its id and its start: who names runs may use a name again."""
    newest: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for path in sorted(paths, key=lambda path: _name(path)[1]):
        rows = _read(path)
        if rows:
            newest[rows[0]["run"], rows[0]["started_unix_ns"]] = rows
    return newest


def _name(path: Path) -> tuple[str, int]:
    """Run id and moment of a file's name; BadFileError for a file that is none of ours."""
    run, _, tail = path.name.removesuffix(".parquet").rpartition(".")
    moment = tail.partition("-")[0]
    if not run or not moment.isdecimal():
        raise BadFileError(f"{path}: not a file of the history by its name; move it away")
    return run, int(moment)
