"""The raw files of a recording: py-spy's trace, compressed, and the kernel's counters of each thread."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kdaprof.runs.atomic import write_bytes, write_with
from kdaprof.runs.stacks import THREADS_FILE, TRACE_FILE, ThreadTicks

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
    table = pa.table(columns).replace_schema_metadata(_METADATA)
    write_with(folder / THREADS_FILE, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def _joined(parts: Sequence[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> pa.Array:
    return pa.array(np.concatenate(parts) if parts else np.zeros(0, np.int64))
