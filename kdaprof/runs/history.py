"""The record of figures over time: a Parquet folder in the store, one file a run, so that two writers never clash.

Append-only: a run that is derived again otherwise (a newer kdaprof, a run that was partial) gets a further file, and
the one written last speaks for it. `pandas.read_parquet(".kdaprof/history")` reads the whole folder.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kdaprof.errors import BadFileError
from kdaprof.runs.cells import CellKey
from kdaprof.runs.codec import read_document
from kdaprof.runs.environment import Environment
from kdaprof.runs.history_rows import Entry, Row, Stamp, from_row, read_rows, to_row, write_file
from kdaprof.runs.place import HISTORY_FOLDER
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import RunResults
from kdaprof.runs.store import RUN_FILE, read_results


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
    rows = [to_row(entry, key) for entry, key in _entries(record, results, run_path, now)]
    before = _newest(path for path in _files(store) if _name(path)[0] == record.run)
    known = before.get((record.run, record.started_unix_ns), [])
    if [_content(row) for row in known] == [_content(row) for row in rows]:
        return False
    name = f"{record.run}.{now}-{secrets.token_hex(2)}.parquet"
    write_file(store / HISTORY_FOLDER / name, rows)
    return True


def read_history(store: Path) -> tuple[Entry, ...]:
    """The figures of every run, each run as it was recorded last, oldest run first.

    Errors: BadFileError with path, reason and way out.
    """
    entries = (from_row(row) for rows in _newest(_files(store)).values() for row in rows)
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


def _content(row: Row) -> Row:
    """Everything but when it was recorded, and where the run lay then."""
    return {name: value for name, value in row.items() if name not in {"recorded_unix_ns", "directory"}}


def _files(store: Path) -> list[Path]:
    return list((store / HISTORY_FOLDER).glob("[!.]*.parquet"))


def _newest(paths: Iterable[Path]) -> dict[tuple[str, int], list[Row]]:
    """The rows that speak for each run. A run is its id and its start: who names runs may use a name again."""
    newest: dict[tuple[str, int], list[Row]] = {}
    for path in sorted(paths, key=lambda path: _name(path)[1]):
        rows = read_rows(path)
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
