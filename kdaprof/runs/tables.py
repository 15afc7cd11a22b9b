"""Our own Parquet files: written atomically, and one way to refuse what is unreadable, of another kind, or too new."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kdaprof.errors import BadFileError
from kdaprof.runs.atomic import write_with


def write_rows(path: Path, schema: pa.Schema, rows: Sequence[object]) -> None:
    """Write objects as rows of `schema`, whose fields are their attributes."""
    columns = {name: [getattr(row, name) for row in rows] for name in schema.names}
    write_table(path, pa.table(columns, schema=schema))


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table atomically."""
    write_with(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def load() -> None:
    """Load what pyarrow loads with its first array, which is pandas: 0.4 s that nothing timed should wait for."""
    pa.array([0])


def read_table(path: Path, name: str, version: int) -> pa.Table:
    """The table of a file with schema `name`, at most `version`; BadFileError with path, reason and way out."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        lines = str(error).splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise BadFileError(f"{path}: not a readable Parquet file ({reason})") from error
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    found = metadata.get(b"kdaprof.schema", b"").decode()
    if found != name:
        raise BadFileError(f"{path}: holds {found or 'no kdaprof schema'!r}, expected {name!r}")
    written = int(metadata.get(b"kdaprof.version", b"0"))
    if written > version:
        raise BadFileError(
            f"{path}: schema {name}/{written} is newer than this kdaprof reads ({version}): upgrade kdaprof"
        )
    return table
