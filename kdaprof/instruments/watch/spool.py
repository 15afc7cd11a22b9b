"""Rows of a long watch on their way to `gpu_util.parquet`: memory stays flat, and a kill loses at most a minute.

A writer of its own fills one part after the other beside the target; each finished part is a whole Parquet file.
`close` puts them together. A disk that fills up ends the writing with one error; the parts before it stay.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kdaprof.runs import tables
from kdaprof.runs.atomic import TargetError, write_with
from kdaprof.runs.util import LATENESS, UTIL_SCHEMA, UtilReading
from kdaprof.runs.util_file import parts_folder, parts_of

BATCH_ROWS = 8192
PART_NS = 60 * 1_000_000_000
_WAITING_BATCHES = 32

Columns = tuple[list[int], list[str | None], list[str], list[float | None], list[bool], list[str | None]]


class Spool:
    """A sink of samples. `tick` and `add` raise TargetError once the disk refuses; `close` always ends the writer."""

    def __init__(self, path: Path, *, batch_rows: int = BATCH_ROWS, part_ns: int = PART_NS) -> None:
        tables.load()  # before the first sample is due
        self._path = path
        self._batch_rows = batch_rows
        self._columns = _empty()
        self._last_batch_ns: int | None = None
        self._part_ns = part_ns
        self._queue: queue.Queue[Columns | None] = queue.Queue(_WAITING_BATCHES)
        self._writer = _Parts(parts_folder(path), part_ns)
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._work, name="kdaprof-gpu-util-file", daemon=True)
        self._thread.start()
        self._closed = False

    def tick(self, t_ns: int, late_ns: int) -> None:
        """How late the sample is, as a row of its own."""
        self._put(UtilReading(t_ns=t_ns, uuid=None, field=LATENESS, value=float(late_ns), stale=False, missing=None))
        if self._last_batch_ns is None:
            self._last_batch_ns = t_ns
        if len(self._columns[0]) >= self._batch_rows or t_ns - self._last_batch_ns >= self._part_ns:
            self._last_batch_ns = t_ns
            self._hand_over()

    def add(self, rows: Sequence[UtilReading]) -> None:
        """One card's rows."""
        for row in rows:
            self._put(row)

    def close(self) -> None:
        """Write what is left and put the file in place.

        Errors: TargetError when the disk refuses; the parts written before stay where `read_util` finds them.
        """
        if self._closed:
            return
        self._closed = True
        if self._columns[0] and self._failure is None:
            self._queue.put(self._columns)
        self._queue.put(None)
        self._thread.join()
        if self._failure is not None:
            raise self._refused(self._failure)
        _put_together(self._path)

    def drop(self) -> None:
        """End the writer and keep nothing: the target stays as it was."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        _remove(self._path, parts_of(self._path))

    def _put(self, row: UtilReading) -> None:
        t_ns, uuid, field, value, stale, missing = self._columns
        t_ns.append(row.t_ns)
        uuid.append(row.uuid)
        field.append(row.field)
        value.append(row.value)
        stale.append(row.stale)
        missing.append(row.missing)

    def _hand_over(self) -> None:
        if self._failure is not None:
            raise self._refused(self._failure)
        self._queue.put(self._columns)
        self._columns = _empty()

    def _refused(self, error: OSError) -> TargetError:
        # pyarrow wraps the system's error into its own words.
        inner = re.search(r"\[errno (\d+)\]", str(error), re.IGNORECASE)
        told = os.strerror(int(inner[1])) if inner else error.strerror or str(error)
        return TargetError(f"{self._path}: cannot write ({told}); free space or choose another --out")

    def _work(self) -> None:
        while (batch := self._queue.get()) is not None:
            self._tried(batch)
        self._tried(None)

    def _tried(self, batch: Columns | None) -> None:
        if self._failure is not None:
            return
        try:
            if batch is None:
                self._writer.finish()
            else:
                self._writer.write(batch)
        except OSError as error:  # pyarrow's faults of files are OSError too
            self._failure = error
            self._writer.abandon()


class _Parts:
    """The parts of one file: written under a hidden name, renamed when whole."""

    def __init__(self, folder: Path, part_ns: int) -> None:
        self._folder = folder
        self._part_ns = part_ns
        self._number = 0
        self._open: pq.ParquetWriter | None = None
        self._began_ns = 0

    def write(self, columns: Columns) -> None:
        if self._open is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._open = pq.ParquetWriter(self._hidden(), UTIL_SCHEMA, compression="zstd")
            self._began_ns = columns[0][0]
        self._open.write_table(pa.table(list(columns), schema=UTIL_SCHEMA))
        if columns[0][-1] - self._began_ns >= self._part_ns:
            self.finish()

    def finish(self) -> None:
        if self._open is None:
            return
        self._open.close()
        self._open = None
        descriptor = os.open(self._hidden(), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(self._hidden(), self._folder / f"part-{self._number:06d}.parquet")
        self._number += 1

    def abandon(self) -> None:
        """Drop the part that could not be written."""
        if self._open is not None:
            with contextlib.suppress(OSError):
                self._open.close()
            self._open = None
        with contextlib.suppress(OSError):
            Path(self._hidden()).unlink(missing_ok=True)

    def _hidden(self) -> str:
        return str(self._folder / f".part-{self._number:06d}.tmp")


def _put_together(path: Path) -> None:
    parts = parts_of(path)

    def join(temporary: Path) -> None:
        with pq.ParquetWriter(temporary, UTIL_SCHEMA, compression="zstd") as writer:
            for part in parts:
                with pq.ParquetFile(part) as file:
                    for batch in file.iter_batches(batch_size=1 << 16):
                        writer.write_batch(batch)

    write_with(path, join)
    _remove(path, parts)


def _remove(path: Path, parts: Sequence[Path]) -> None:
    for part in parts:
        part.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # what else lies there is not the spool's
        parts_folder(path).rmdir()


def _empty() -> Columns:
    return [], [], [], [], [], []
