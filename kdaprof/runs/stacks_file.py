"""The raw files of a recording: py-spy's trace, compressed, the kernel's counters of each thread, native stops."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kdaprof.runs.atomic import write_bytes, write_with
from kdaprof.runs.stacks import HOLDS_FILE, THREADS_FILE, TRACE_FILE, Holds, ThreadTicks

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
    _write(folder / THREADS_FILE, pa.table(columns).replace_schema_metadata(_METADATA))


def write_holds(folder: Path, holds: Holds) -> None:
    """One row a stop: start_ns, end_ns, asleep; how often was looked stands in the metadata. Errors: TargetError."""
    columns = {"start_ns": holds.start_ns, "end_ns": holds.end_ns, "asleep": holds.asleep}
    metadata = {b"kdaprof.schema": b"kdaprof.stacks-holds", b"kdaprof.version": b"1", b"looks": b"%d" % holds.looks}
    _write(folder / HOLDS_FILE, pa.table(columns).replace_schema_metadata(metadata))


def _write(path: Path, table: pa.Table) -> None:
    write_with(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def _joined(parts: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> pa.Array:
    return pa.array(np.concatenate(parts) if parts else np.zeros(0, np.int64))
