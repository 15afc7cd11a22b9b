"""A run while it is being measured: the record as it stands, and the directory that always holds the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kdaprof.probe.child import ChildCell, ChildResult
from kdaprof.runs.cells import CellKey
from kdaprof.runs.environment import Secrets, scrub
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.samples import Sample
from kdaprof.runs.store import RunWriter
from kdaprof.runs.util import UTIL_FILE, UtilReading, write_util


class OpenRun:
    """Every change is on disk when its method returns. With `secrets`, none of them ever reaches the disk."""

    def __init__(self, record: RunRecord, writer: RunWriter, secrets: Secrets | None) -> None:
        self.writer = writer
        self._secrets = secrets
        self._util: list[UtilReading] = []
        self.record = record

    def update(self, **changes: object) -> None:
        """Change fields of the record."""
        record = replace(self.record, **changes)  # type: ignore[arg-type]
        self.record = scrub(record, self._secrets) if self._secrets else record
        self.writer.put_record(self.record)

    def note(self, *texts: str) -> None:
        """Add lines that the report shows."""
        if texts:
            self.update(notes=(*self.record.notes, *texts))

    def cell(self, key: CellKey) -> CellRecord:
        """The cell as it stands."""
        return next(cell for cell in self.record.cells if cell.key == key)

    def put_cell(self, cell: CellRecord, samples: Sequence[Sample] = ()) -> None:
        """Put a cell in its place; `samples` are all that it has so far."""
        if samples:
            self.writer.put_samples(cell.key, samples)
        self.update(cells=tuple(cell if old.key == cell.key else old for old in self.record.cells))

    def put_missing(self, key: CellKey, fact: str, reason: str) -> None:
        """Say why a figure of a cell is not there."""
        record = self.cell(key)
        if record.observed is not None:
            missing = record.observed.missing | {fact: reason}
            self.put_cell(replace(record, observed=replace(record.observed, missing=missing)))

    def put_util(self, readings: Sequence[UtilReading]) -> None:
        """Add sampled readings of the GPU."""
        self._util.extend(readings)
        if self._util:
            write_util(self.writer.path / UTIL_FILE, self._util)

    def merge(self, key: CellKey, result: ChildResult, *, fact: str) -> ChildCell:
        """Put what a child saw of a cell beside what was seen here; a child's failure is the reason of `fact`."""
        seen = result.of(key.id)
        record = self.cell(key)
        assert record.observed is not None
        missing = dict(record.observed.missing)
        if seen is None:
            missing[fact] = result.failure or "the worker process left no result"
            seen = ChildCell(cell=key.id)
        elif seen.error is not None:
            missing[fact] = f"{seen.error.type}: {seen.error.text}"
        else:
            missing |= seen.missing
        profiled = (*record.observed.profiled, *seen.profiled)
        slow = (*record.observed.slow_steps, *seen.slow_steps)
        observed = replace(record.observed, profiled=profiled, slow_steps=slow, missing=missing)
        merged = replace(record, observed=observed)
        before = self.writer.samples(key)
        self.put_cell(merged, (*before, *_renumbered(before, seen.samples)) if seen.samples else ())
        return seen


def _renumbered(before: Sequence[Sample], fresh: Sequence[Sample]) -> tuple[Sample, ...]:
    """Indices go on where the cell's samples of that kind left off: each child counts from 0."""
    seen = {repeat: sum(1 for s in before if s.repeat == repeat) for repeat in {s.repeat for s in fresh}}
    return tuple(replace(sample, index=sample.index + seen[sample.repeat]) for sample in fresh)
