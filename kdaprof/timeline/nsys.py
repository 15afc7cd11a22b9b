"""Reads Nsight Systems exports (`nsys export --type sqlite`): kernels, copies, sets, calls, NVTX, synchronises.

Tables and columns differ between versions and with what was traced: a table that is missing means nothing of
its kind was recorded, a column that is missing is null.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from kdaprof.errors import BadFileError
from kdaprof.timeline.build import Builder
from kdaprof.timeline.clean import NO_END, NO_START
from kdaprof.timeline.columns import MISSING, Device, Int32, Kind, Timeline

_BATCH = 50_000
_PROCESS_SHIFT = 24
_THREAD_MASK = (1 << _PROCESS_SHIFT) - 1
_CORRELATION_BITS = 32

NVTX_PUSH_POP, NVTX_START_END = 59, 60
_OPERATOR = re.compile(r"^(aten|autograd|torch|c10d|prims|quantized|_c10d_functional)::|, op_id = \d+$")
_OPERATOR_DETAIL = re.compile(r", (seq|op_id) = .*$")
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
_MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}


def read(path: Path) -> Timeline:
    """Read an export. Raises `BadFileError` when it is no SQLite database, damaged, or holds no events."""
    if not path.is_file():
        raise BadFileError(f"{path}: no such file")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.text_factory = lambda text: text.decode("utf-8", errors="replace")
            return _Reader(path, database).read()
    except (sqlite3.Error, TypeError, ValueError, OverflowError, MemoryError) as error:
        # SQLite takes any value in any column: in a damaged export, text may stand where a time belongs.
        raise BadFileError(f"{path}: not a readable SQLite export of Nsight Systems: {error}") from error


class _Reader:
    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self.path = path
        self.database = database
        self.builder = Builder()
        self.notes: list[str] = []
        found = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self.tables = {name for (name,) in found}
        self.strings: dict[int, str] = {}

    def read(self) -> Timeline:
        if "StringIds" in self.tables:
            self.strings = dict(self.database.execute("SELECT id, value FROM StringIds"))
        self._kernels()
        self._copies()
        self._sets()
        self._calls()
        self._nvtx()
        if not self.builder.read:
            known = sorted(self.tables)[:6]
            raise BadFileError(
                f"{self.path}: no events of a GPU, of CUDA calls or of NVTX (tables: {known}); record a command that "
                "has some"
            )
        return self.builder.finish(
            format_="nsys",
            path=str(self.path),
            base_ns=self._base(),
            devices=self._devices(),
            notes=self.notes,
        )

    def _rows(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Batches of rows of a table; nothing when it is missing, nulls for columns that are."""
        if table not in self.tables:
            return
        present = {row[1] for row in self.database.execute(f'PRAGMA table_info("{table}")')}
        if not {"start", "end"} <= present:
            self.notes.append(f"table {table} has no times")
            return
        chosen = ", ".join(f'"{column}"' if column in present else "NULL" for column in columns)
        cursor = self.database.execute(f'SELECT {chosen} FROM "{table}"')
        while batch := cursor.fetchmany(_BATCH):
            self.builder.read += len(batch)
            yield batch

    def _kernels(self) -> None:
        columns = (
            "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName",
            "graphNodeId",
        )  # fmt: skip
        for batch in self._rows("CUPTI_ACTIVITY_KIND_KERNEL", columns):
            start, end, device, stream, correlation, pid, name, short, node = zip(*batch, strict=True)
            names = [self._string(a if a is not None else b) for a, b in zip(name, short, strict=True)]
            self._device(Kind.KERNEL, start, end, device, stream, correlation, pid, names, node)

    def _copies(self) -> None:
        columns = (
            "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "copyKind", "srcKind", "dstKind",
            "graphNodeId",
        )  # fmt: skip
        for batch in self._rows("CUPTI_ACTIVITY_KIND_MEMCPY", columns):
            start, end, device, stream, correlation, pid, kind, source, target, node = zip(*batch, strict=True)
            names = [_copy_name(*kinds) for kinds in zip(kind, source, target, strict=True)]
            self._device(Kind.MEMCPY, start, end, device, stream, correlation, pid, names, node)

    def _sets(self) -> None:
        columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "memKind", "graphNodeId")
        for batch in self._rows("CUPTI_ACTIVITY_KIND_MEMSET", columns):
            start, end, device, stream, correlation, pid, memory, node = zip(*batch, strict=True)
            names = [f"Memset ({_MEMORY_KINDS.get(kind, 'Unknown')})" for kind in memory]
            self._device(Kind.MEMSET, start, end, device, stream, correlation, pid, names, node)

    def _device(
        self,
        kind: Kind,
        start: Sequence[Any],
        end: Sequence[Any],
        device: Sequence[Any],
        stream: Sequence[Any],
        correlation: Sequence[Any],
        pid: Sequence[Any],
        names: Sequence[str],
        node: Sequence[Any],
    ) -> None:
        self.builder.add(
            len(start),
            kind=np.full(len(start), int(kind), dtype=np.uint8),
            name=self.builder.names.many(names),
            start_ns=_times(start, NO_START),
            end_ns=_times(end, NO_END),
            device=_whole(device),
            stream=_whole(stream),
            correlation=self._correlations(correlation, pid),
            graph_node=_whole(node) if any(value is not None for value in node) else None,
        )

    def _calls(self) -> None:
        columns = ("start", "end", "globalTid", "correlationId", "nameId")
        for batch in self._rows("CUPTI_ACTIVITY_KIND_RUNTIME", columns):
            start, end, thread, correlation, name = zip(*batch, strict=True)
            names = [self._string(value) for value in name]
            kinds = [
                int(Kind.DRIVER if text.startswith("cu") and text[2:3].isupper() else Kind.RUNTIME) for text in names
            ]
            self.builder.add(
                len(start),
                kind=kinds,
                name=self.builder.names.many(names),
                start_ns=_times(start, NO_START),
                end_ns=_times(end, NO_END),
                thread=self._threads(thread),
                correlation=self._correlations(correlation, thread),
            )

    def _nvtx(self) -> None:
        """Ranges: operators of `emit_nvtx` are operators, all others annotations. Marks have no length."""
        columns = ("start", "end", "eventType", "text", "textId", "globalTid")
        for batch in self._rows("NVTX_EVENTS", columns):
            ranges = [row for row in batch if row[1] is not None and row[2] in (NVTX_PUSH_POP, NVTX_START_END)]
            if not ranges:
                continue
            start, end, _, text, text_id, thread = zip(*ranges, strict=True)
            names = [a if a is not None else self._string(b) for a, b in zip(text, text_id, strict=True)]
            operator = [_OPERATOR.search(name) is not None for name in names]
            self.builder.add(
                len(start),
                kind=[int(Kind.CPU_OP if is_op else Kind.ANNOTATION) for is_op in operator],
                name=self.builder.names.many(_OPERATOR_DETAIL.sub("", name) for name in names),
                start_ns=_times(start, NO_START),
                end_ns=_times(end, NO_END),
                thread=self._threads(thread),
            )

    def _threads(self, global_ids: Sequence[Any]) -> Int32:
        pids = [_pid(value) for value in global_ids]
        tids = [int(value) & _THREAD_MASK if value is not None else MISSING for value in global_ids]
        return self.builder.thread_ids(pids, tids)

    def _correlations(self, numbers: Sequence[Any], global_ids: Sequence[Any]) -> list[int]:
        """Correlations count in each process apart, so the process is part of the number."""
        return [
            (_pid(process) << _CORRELATION_BITS) + int(number) if number else MISSING
            for number, process in zip(numbers, global_ids, strict=True)
        ]

    def _string(self, number: Any) -> str:
        return self.strings.get(number, f"unknown name {number}")

    def _base(self) -> int | None:
        if "TARGET_INFO_SESSION_START_TIME" not in self.tables:
            return None
        columns = {row[1] for row in self.database.execute('PRAGMA table_info("TARGET_INFO_SESSION_START_TIME")')}
        if not {"utcEpochNs", "systemClockNs"} <= columns:
            return None
        row = self.database.execute("SELECT utcEpochNs, systemClockNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        return int(row[0]) - int(row[1]) if row and None not in row else None

    def _devices(self) -> tuple[Device, ...]:
        if "TARGET_INFO_GPU" not in self.tables:
            return ()
        columns = {row[1] for row in self.database.execute('PRAGMA table_info("TARGET_INFO_GPU")')}
        if not {"id", "name"} <= columns:
            return ()
        found = self.database.execute("SELECT id, name FROM TARGET_INFO_GPU ORDER BY id").fetchall()
        return tuple(Device(index=int(index), name=name) for index, name in found)


def _pid(global_id: Any) -> int:
    """The process in a serialised global id: bits 24 to 47."""
    return (int(global_id) >> _PROCESS_SHIFT) & 0xFFFFFF if global_id is not None else 0


def _copy_name(kind: Any, source: Any, target: Any) -> str:
    """As CUPTI's other readers call it: `Memcpy DtoH (Device -> Pageable)`."""
    what = _COPY_KINDS.get(kind, f"kind {kind}")
    return f"Memcpy {what} ({_MEMORY_KINDS.get(source, 'Unknown')} -> {_MEMORY_KINDS.get(target, 'Unknown')})"


def _times(values: Sequence[Any], missing: int) -> list[int]:
    return [value if isinstance(value, int) else missing for value in values]


def _whole(values: Sequence[Any]) -> list[int]:
    return [value if isinstance(value, int) and value >= 0 else MISSING for value in values]
