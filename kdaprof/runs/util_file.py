"""`gpu_util.parquet` of a long watch, read field by field: memory grows with one field, not with the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kdaprof.errors import BadFileError
from kdaprof.runs.util import SCHEMA_NAME, SCHEMA_VERSION, UTIL_SCHEMA, UtilReading

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class FieldSeries:
    """One field of one card in order of time: `value` is NaN where it is missing; `reasons` counts why."""

    t_ns: IntArray
    value: FloatArray
    stale: BoolArray
    reasons: dict[str, int]

    def fresh(self) -> tuple[IntArray, FloatArray]:
        """Times and values that are there and are observations of their own."""
        keep = ~self.stale & np.isfinite(self.value)
        return self.t_ns[keep], self.value[keep]

    @property
    def reason(self) -> str | None:
        """The most frequent reason of what is missing."""
        return max(self.reasons, key=lambda reason: self.reasons[reason]) if self.reasons else None


def series_of(rows: Iterable[UtilReading]) -> FieldSeries:
    """Rows of one field of one card as a series."""
    ordered = sorted(rows, key=lambda row: row.t_ns)
    return FieldSeries(
        t_ns=np.array([row.t_ns for row in ordered], np.int64),
        value=np.array([row.value for row in ordered], np.float64),  # None is NaN
        stale=np.array([row.stale for row in ordered], bool),
        reasons=dict(Counter(row.missing for row in ordered if row.missing is not None)),
    )


def parts_folder(path: Path) -> Path:
    """Where the parts of an unfinished file lie."""
    return path.with_name(f".{path.name}.parts")


def parts_of(path: Path) -> list[Path]:
    """Finished parts, in order."""
    return sorted(parts_folder(path).glob("part-*.parquet"))


class UtilFile:
    """A stored watch. A watch that was killed has no file yet, and is read from its parts."""

    def __init__(self, path: Path) -> None:
        """Errors: BadFileError with path and reason when there is nothing that can be read."""
        files = [path] if path.is_file() else parts_of(path)
        if not files:
            raise BadFileError(f"{path}: no samples there; is this a directory that `kdaprof gpu-util` wrote?")
        self._path = path
        self._files = files
        try:
            metadata: dict[bytes, bytes] = pq.read_schema(files[0]).metadata or {}
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from error
        if metadata.get(b"kdaprof.schema", b"").decode() != SCHEMA_NAME:
            raise BadFileError(f"{path}: holds no {SCHEMA_NAME!r}; is this the right file?")
        if int(metadata.get(b"kdaprof.version", b"0")) > SCHEMA_VERSION:
            raise BadFileError(f"{path}: newer than this kdaprof reads ({SCHEMA_NAME}/{SCHEMA_VERSION}): upgrade")

    def fields(self) -> tuple[str, ...]:
        """Every field that some card has, in the order of their names."""
        found: set[str] = set()
        for batch in self.batches(["field"]):
            found |= set(pc.unique(batch.column(0)).to_pylist())
        return tuple(sorted(found))

    def series(self, field: str) -> dict[str | None, FieldSeries]:
        """That field of every card, by UUID."""
        found = [batch.filter(pc.equal(batch.column("field"), field)) for batch in self.batches()]
        table = pa.Table.from_batches(found, schema=UTIL_SCHEMA)
        cards = pc.unique(table.column("uuid")).to_pylist()
        return {uuid: _series(table.filter(_is(table.column("uuid"), uuid))) for uuid in cards}

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows as they were written."""
        for path in self._files:
            try:
                with pq.ParquetFile(path) as file:
                    yield from file.iter_batches(columns=None if columns is None else list(columns))
            except (OSError, pa.ArrowException) as error:
                raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> BadFileError:
        return BadFileError(f"{self._path}: not a readable Parquet file ({str(error).splitlines()[0]})")


def _is(column: pa.ChunkedArray, uuid: str | None) -> pa.ChunkedArray:
    return pc.is_null(column) if uuid is None else pc.fill_null(pc.equal(column, uuid), False)


def _series(table: pa.Table) -> FieldSeries:
    table = table.sort_by("t_ns")
    reasons = table.column("missing").drop_null().value_counts()
    return FieldSeries(
        t_ns=table.column("t_ns").to_numpy(),
        value=table.column("value").to_numpy(),
        stale=table.column("stale").to_numpy(),
        reasons={str(row["values"]): int(row["counts"]) for row in reasons.to_pylist()},
    )
