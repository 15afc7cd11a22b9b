"""`timeline-*.parquet`: one row an event, nulls where a value is missing, schema name and version inside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kdaprof.errors import BadFileError
from kdaprof.runs.tables import write_table
from kdaprof.timeline.columns import MISSING, Device, Kind, ReadCounts, Source, Thread, Timeline

SCHEMA_NAME = "kdaprof.timeline"
SCHEMA_VERSION = 1

_INTEGERS = (
    ("start_ns", pa.int64(), False),
    ("end_ns", pa.int64(), False),
    ("device", pa.int16(), True),
    ("stream", pa.int32(), True),
    ("thread", pa.int32(), True),
    ("correlation", pa.int64(), True),
    ("graph_node", pa.int64(), True),
    ("step", pa.int32(), True),
)
_TEXTS = ("name", "phase", "stack")


def write(path: Path, timeline: Timeline) -> None:
    """Write atomically. Raises `kdaprof.runs.atomic.TargetError` when the target cannot be written."""
    write_table(path, to_table(timeline))


def read(path: Path) -> Timeline:
    """Read what `write` wrote. Raises `BadFileError` naming the file and the reason."""
    try:
        table = pq.read_table(path)
    except FileNotFoundError as error:
        raise BadFileError(f"{path}: no such file") from error
    except (OSError, pa.ArrowException) as error:
        raise BadFileError(f"{path}: not a readable Parquet file: {error}") from error
    return from_table(table, path=path)


def to_table(timeline: Timeline) -> pa.Table:
    """The Arrow table of a timeline; `kind`, `name`, `phase` and `stack` are dictionary-encoded text."""
    kinds = [kind.name.lower() for kind in Kind]
    arrays: dict[str, pa.Array] = {
        "kind": pa.DictionaryArray.from_arrays(pa.array(timeline.kind.astype(np.int8) - 1), pa.array(kinds))
    }
    used, name_ids = np.unique(np.concatenate([getattr(timeline, column) for column in _TEXTS]), return_inverse=True)
    offset = int((used < 0).sum())
    texts = pa.array([timeline.names[int(index)] for index in used[offset:]], type=pa.string())
    for column, ids in zip(_TEXTS, np.split(name_ids.reshape(-1) - offset, len(_TEXTS)), strict=True):
        numbers = pa.array(ids.astype(np.int32), mask=ids < 0)
        arrays[column] = pa.DictionaryArray.from_arrays(numbers, texts)
    for column, type_, nullable in _INTEGERS:
        values = np.ascontiguousarray(getattr(timeline, column))
        arrays[column] = pa.array(values, type=type_, mask=values == MISSING if nullable else None)
    order = ("kind", "name", "start_ns", "end_ns", "device", "stream", "thread", "correlation", "graph_node")
    table = pa.table({column: arrays[column] for column in (*order, "step", "phase", "stack")})
    return table.replace_schema_metadata(_metadata(timeline))


def from_table(table: pa.Table, *, path: Path | None = None) -> Timeline:
    """The timeline of an Arrow table. Raises `BadFileError` when it is of another schema, or newer."""
    where = str(path) if path is not None else "table"
    metadata = table.schema.metadata or {}
    name, version = metadata.get(b"schema", b"").decode(), metadata.get(b"version", b"0").decode()
    if name != SCHEMA_NAME:
        raise BadFileError(f"{where}: not a timeline of kdaprof (schema {name or 'missing'})")
    if not version.isdigit() or int(version) > SCHEMA_VERSION:
        raise BadFileError(f"{where}: timeline version {version} is newer than this kdaprof; upgrade kdaprof")
    try:
        return _timeline(table, json.loads(metadata[b"source"]), json.loads(metadata[b"threads"]))
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise BadFileError(f"{where}: damaged timeline: {error}") from error


def _timeline(table: pa.Table, source: dict[str, Any], threads: list[list[int | str]]) -> Timeline:
    names: dict[str, int] = {}
    ids: dict[str, Any] = {column: _ids(table.column(column), names) for column in _TEXTS}
    kind_names = {kind.name.lower(): int(kind) for kind in Kind}
    kinds = table.column("kind").combine_chunks().dictionary_decode().to_pylist()
    integers: dict[str, Any] = {
        column: table.column(column).combine_chunks().fill_null(MISSING).to_numpy(zero_copy_only=False)
        for column, _, _ in _INTEGERS
    }
    return Timeline(
        kind=np.array([kind_names[kind] for kind in kinds], dtype=np.uint8),
        **ids,
        **integers,
        names=tuple(names),
        threads=tuple(Thread(pid=pid, tid=tid) for pid, tid in threads),
        source=_source(source, table.num_rows),
    )


def _ids(column: pa.ChunkedArray, names: dict[str, int]) -> np.ndarray[Any, np.dtype[np.int32]]:
    encoded = column.combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # an empty table has no chunk to combine
        return np.empty(0, dtype=np.int32)
    table = np.array([names.setdefault(text, len(names)) for text in encoded.dictionary.to_pylist()], np.int32)
    index = encoded.indices.fill_null(MISSING).to_numpy(zero_copy_only=False)
    if not table.size:
        return np.full(len(index), MISSING, dtype=np.int32)
    return cast("np.ndarray[Any, np.dtype[np.int32]]", np.where(index < 0, np.int32(MISSING), table[index]))


def _metadata(timeline: Timeline) -> dict[str, str]:
    source = timeline.source
    document = {
        "format": source.format,
        "path": Path(source.path).name if source.path is not None else None,  # a run travels; its folders do not
        "base_ns": source.base_ns,
        "rank": source.rank,
        "world_size": source.world_size,
        "devices": [[device.index, device.name] for device in source.devices],
        "complete": source.complete,
        "read": source.counts.read,
        "dropped": dict(source.counts.dropped),
        "repaired": dict(source.counts.repaired),
        "notes": list(source.notes),
    }
    return {
        "schema": SCHEMA_NAME,
        "version": str(SCHEMA_VERSION),
        "source": json.dumps(document),
        "threads": json.dumps([[thread.pid, thread.tid] for thread in timeline.threads]),
    }


def _source(document: dict[str, Any], rows: int) -> Source:
    return Source(
        format=document["format"],
        path=document["path"],
        base_ns=document["base_ns"],
        rank=document["rank"],
        world_size=document["world_size"],
        devices=tuple(Device(index=index, name=name) for index, name in document["devices"]),
        complete=document["complete"],
        counts=ReadCounts(
            read=document["read"],
            kept=rows,
            dropped=document["dropped"],
            repaired=document["repaired"],
        ),
        notes=tuple(document["notes"]),
    )
