"""The run directory: one part a cell, each written atomically: a kill loses at most the cell in progress."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from kdaprof.errors import BadFileError, UsageError
from kdaprof.runs.atomic import TargetError, write_text
from kdaprof.runs.cells import CellKey
from kdaprof.runs.codec import read_document, to_json, write_document
from kdaprof.runs.older import make_way
from kdaprof.runs.record import CellError, CellRecord, RunRecord
from kdaprof.runs.results import CellResult, Finding, RunResults
from kdaprof.runs.samples import Sample, read_samples, write_sample_tables, write_samples
from kdaprof.runs.stacks import STACKS_FILES
from kdaprof.runs.util import UTIL_FILE
from kdaprof.runs.util_csv import CSV_FILE
from kdaprof.runs.watch import PICTURE_FILE, WATCH_FILE, forget_begun

RUN_FILE = "run.json"
FACTS_FILE = "facts.json"
FINDINGS_FILE = "findings.json"
REPORT_FILE = "report.md"
SWEEP_FILES = ("sweep.json", "sweep.md", "sweep.svg")
SAMPLES_FOLDER = "samples.parquet"

_WATCH_FILES = (UTIL_FILE, WATCH_FILE, CSV_FILE, PICTURE_FILE)
_REPLACED = (RUN_FILE, FACTS_FILE, FINDINGS_FILE, REPORT_FILE, *SWEEP_FILES, *_WATCH_FILES)
_NEEDED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as it lies on disk: its record and every sample, by cell id."""

    path: Path
    record: RunRecord
    samples: dict[str, tuple[Sample, ...]]


class RunWriter:
    """Fills one run directory. Every method leaves a readable run behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put_record(self, record: RunRecord) -> None:
        """Write run.json."""
        write_document(self.path / RUN_FILE, "run-record", to_json(record))

    def put_samples(self, key: CellKey, samples: Sequence[Sample]) -> None:
        """Write the part of one cell (all its samples so far)."""
        write_samples(self._part(key), samples)

    def put_part(self, key: CellKey, number: int, tables: Sequence[pa.Table]) -> None:
        """Write part `number` ≥ 1 of a cell whose series is too long for one; read back, parts are one series."""
        write_sample_tables(self.path / SAMPLES_FOLDER / f"{key.slug}.{number:06d}.parquet", tables)

    def samples(self, key: CellKey) -> tuple[Sample, ...]:
        """What the part of one cell holds so far."""
        part = self._part(key)
        return read_samples(part) if part.exists() else ()

    def _part(self, key: CellKey) -> Path:
        return self.path / SAMPLES_FOLDER / f"{key.slug}.parquet"

    def put_results(self, results: RunResults) -> None:
        """Write facts.json and findings.json."""
        body = {"run": results.run, "cells": to_json(results.cells)}
        write_document(self.path / FACTS_FILE, "facts", body)
        findings = {"run": results.run, "findings": to_json(results.findings)}
        write_document(self.path / FINDINGS_FILE, "findings", findings)

    def put_report(self, text: str) -> None:
        """Write report.md."""
        write_text(self.path / REPORT_FILE, text)


def timeline_name(key: CellKey, kind: str) -> str:
    """File name of a cell's timeline of one recording kind, relative to the run."""
    return f"timeline-{key.slug}-{kind}.parquet"


FLAGS, ARGUMENTS = ("--out ", "add --force"), ("out=", "pass force=True")
"""How an error names what its reader gave: on a command line, or to a function."""


def open_target(path: Path, *, force: bool = False, spoken: tuple[str, str] = FLAGS) -> RunWriter:
    """A writer on `path`, checked before anything is measured: empty, or `force` takes away the run that is there.

    Errors: those of `check_target`.
    """
    check_target(path, force=force, spoken=spoken)
    _clear(path)
    return RunWriter(path)


def check_target(path: Path, *, force: bool = False, spoken: tuple[str, str] = FLAGS) -> None:
    """Make the folder `path` and see that it can be used: empty (or `force`), writable, with room; take nothing away.

    Errors: UsageError when it holds files already; TargetError when it cannot be written or the disk is full. They
    speak of flags or of arguments: `spoken`.
    """
    out = f"{spoken[0]}{path}"
    if path.exists() and not path.is_dir():
        raise UsageError(f"{out}: exists and is not a directory; choose another")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise UsageError(f"{out}: not empty; choose another or {spoken[1]}")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".probe-") as trial:
            trial.write(b"\0" * 4096)
            trial.flush()
            os.fsync(trial.fileno())
        room = os.statvfs(path)
    except OSError as error:
        raise TargetError(f"{out}: cannot write there ({error.strerror or error}); choose another") from error
    free = room.f_bavail * room.f_frsize
    if free < _NEEDED_BYTES:
        raise TargetError(
            f"{out}: {free >> 20} MiB free, a run needs {_NEEDED_BYTES >> 20}; free space or choose another"
        )


def _clear(path: Path) -> None:
    """Remove what an earlier run or watch left, stacks of its paths included, and nothing else: two must not mix.

    The parts of an unfinished watch stay, since it may be one that runs around us; nothing reads them without the
    record of its beginning.
    """
    stacks = (folder / name for folder in path.glob("stacks-*/") for name in (*STACKS_FILES, REPORT_FILE))
    make_way(*(path / name for name in _REPLACED), *stacks)
    for folder in path.glob("stacks-*/"):
        with suppress(OSError):  # holds something of somebody else's
            folder.rmdir()
    forget_begun(path)
    for part in (*path.glob("timeline-*.parquet"), *(path / SAMPLES_FOLDER).glob("*.parquet")):
        part.unlink()


def read_run(path: Path) -> StoredRun:
    """Load a run. A cell that was being measured when the run died is `failed`, with its samples.

    Errors: BadFileError with path, reason and way out.
    """
    if not path.is_dir():
        raise BadFileError(f"{path}: no such run directory; `ls runs/` shows what there is")
    record = read_document(path / RUN_FILE, "run-record", RunRecord)
    samples = _parts(path / SAMPLES_FOLDER)
    cells = tuple(_settle(cell, bool(samples.get(cell.id))) for cell in record.cells)
    return StoredRun(path, replace(record, cells=cells), samples)


def read_results(path: Path) -> RunResults:
    """The facts and findings as they were written beside the run.

    Errors: BadFileError with path, reason and way out; a run that was killed has none yet.
    """
    gone = [name for name in (FACTS_FILE, FINDINGS_FILE) if not (path / name).exists()]
    if gone and (path / RUN_FILE).is_file():
        raise BadFileError(
            f"{path}: has no stored figures yet (no {' and no '.join(gone)}), as a run that was killed; "
            f"`kdaprof report {path} --write` derives and stores them"
        )
    facts = read_document(path / FACTS_FILE, "facts", _FactsFile)
    findings = read_document(path / FINDINGS_FILE, "findings", _FindingsFile)
    return RunResults(run=facts.run, cells=facts.cells, findings=findings.findings)


def _parts(folder: Path) -> dict[str, tuple[Sample, ...]]:
    """Samples by cell; parts of one cell in the order of their names, which is that of their numbers."""
    found: dict[str, tuple[Sample, ...]] = {}
    for part in sorted(folder.glob("[!.]*.parquet")):
        rows = read_samples(part)
        if rows:
            found[rows[0].cell] = (*found.get(rows[0].cell, ()), *rows)
    return found


def _settle(cell: CellRecord, has_samples: bool) -> CellRecord:
    if cell.status != "skipped" or not has_samples:
        return cell
    text = "the run ended while this cell was being measured; its samples are kept"
    return replace(cell, status="failed", error=CellError(type="InterruptedRunError", text=text))


@dataclass(frozen=True, slots=True, kw_only=True)
class _FactsFile:
    run: str
    cells: tuple[CellResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FindingsFile:
    run: str
    findings: tuple[Finding, ...]
