"""The files of a recording, in and out: py-spy's trace, the kernel's counters of each thread, native stops."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kdaprof.errors import BadFileError
from kdaprof.runs.atomic import write_bytes
from kdaprof.runs.codec import read_document
from kdaprof.runs.stacks import (
    HOLDS_FILE,
    STACKS_FILE,
    STACKS_KIND,
    THREADS_FILE,
    TRACE_FILE,
    Holds,
    StacksRecord,
    ThreadTicks,
)
from kdaprof.runs.tables import write_table

_METADATA = {b"kdaprof.schema": b"kdaprof.stacks-threads", b"kdaprof.version": b"1"}


def write_trace(folder: Path, trace: bytes) -> None:
    """Chrome's tracing and Perfetto open it as it is. Errors: TargetError."""
    write_bytes(folder / TRACE_FILE, gzip.compress(trace, compresslevel=5, mtime=0))


def write_threads(folder: Path, threads: Sequence[ThreadTicks]) -> None:
    """One row a look at a thread: t_ns, tid, name, run_ns, delay_ns. Errors: TargetError."""
    columns = {
        "t_ns": _joined([t.t_ns for t in threads]),
        "tid": _joined([np.full(len(t.t_ns), t.tid, np.int64) for t in threads]),
        "name": pa.array([t.name for t in threads for _ in t.t_ns], pa.string()).dictionary_encode(),
        "run_ns": _joined([t.run_ns for t in threads]),
        "delay_ns": _joined([t.delay_ns for t in threads]),
    }
    write_table(folder / THREADS_FILE, pa.table(columns).replace_schema_metadata(_METADATA))


def write_holds(folder: Path, holds: Holds) -> None:
    """One row a stop: start_ns, end_ns; looks and unseen_ns stand in the metadata. Errors: TargetError."""
    columns = {"start_ns": holds.start_ns, "end_ns": holds.end_ns}
    metadata = {b"kdaprof.schema": b"kdaprof.stacks-holds", b"kdaprof.version": b"1", b"looks": b"%d" % holds.looks}
    if holds.unseen_ns is not None:
        metadata[b"unseen_ns"] = b"%d" % holds.unseen_ns
    write_table(folder / HOLDS_FILE, pa.table(columns).replace_schema_metadata(metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    recording: StacksRecord


def read_record(folder: Path) -> StacksRecord:
    """What is known of a stored recording. Errors: BadFileError with path, reason and way out."""
    return read_document(folder / STACKS_FILE, STACKS_KIND, _Stored).recording


def read_trace(folder: Path) -> bytes:
    """py-spy's trace. Errors: BadFileError."""
    path = folder / TRACE_FILE
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        told = getattr(error, "strerror", None) or error
        raise BadFileError(f"{path}: cannot read ({told}); restore the file or record again") from error


def read_threads(folder: Path) -> tuple[ThreadTicks, ...]:
    """The kernel's counters, the first thread first. Errors: BadFileError."""
    table = _read(folder / THREADS_FILE, b"kdaprof.stacks-threads")
    tids = table.column("tid").to_numpy()
    found = []
    for tid in np.unique(tids).tolist():
        rows = table.filter(pa.array(tids == tid))
        t_ns, run_ns, delay_ns = (rows.column(name).to_numpy() for name in ("t_ns", "run_ns", "delay_ns"))
        name = str(rows.column("name")[0].as_py())
        found.append(ThreadTicks(tid=tid, name=name, t_ns=t_ns, run_ns=run_ns, delay_ns=delay_ns))
    return tuple(found)


def read_holds(folder: Path) -> Holds | None:
    """The stops of native stacks; None for Python stacks, which make none. Errors: BadFileError."""
    if not (folder / HOLDS_FILE).exists():
        return None
    table = _read(folder / HOLDS_FILE, b"kdaprof.stacks-holds")
    start_ns, end_ns = (table.column(name).to_numpy() for name in ("start_ns", "end_ns"))
    said = table.schema.metadata or {}
    unseen = int(said[b"unseen_ns"]) if b"unseen_ns" in said else None
    return Holds(start_ns=start_ns, end_ns=end_ns, looks=int(said[b"looks"]), unseen_ns=unseen)


def _read(path: Path, schema: bytes) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        told = str(error).splitlines()[0]
        raise BadFileError(f"{path}: not a readable Parquet file ({told}); restore the file or record again") from error
    metadata = table.schema.metadata or {}
    if metadata.get(b"kdaprof.schema") != schema:
        raise BadFileError(f"{path}: holds no {schema.decode()!r}; is this the right file?")
    if int(metadata.get(b"kdaprof.version", b"0")) > 1:
        raise BadFileError(f"{path}: newer than this kdaprof reads: upgrade kdaprof")
    return table


def _joined(parts: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> pa.Array:
    return pa.array(np.concatenate(parts) if parts else np.zeros(0, np.int64))
