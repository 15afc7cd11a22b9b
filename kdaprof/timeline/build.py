"""Collects columns piece by piece and makes a `Timeline` of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kdaprof.timeline.clean import clean
from kdaprof.timeline.columns import MISSING, Device, Int32, ReadCounts, Source, Thread, Timeline

_DTYPES: dict[str, DTypeLike] = {
    "kind": np.uint8,
    "name": np.int32,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "device": np.int16,
    "stream": np.int32,
    "thread": np.int32,
    "correlation": np.int64,
    "graph_node": np.int64,
    "stack": np.int32,
}
_OPTIONAL = ("graph_node", "stack")
"""Most sources have none: then the column is one value, repeated without memory."""


class _Ids(dict[str, int]):
    """Numbers what it is asked for and does not know yet; a look-up then stays in C."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


class Interner:
    """Gives each distinct string a small number, in order of appearance."""

    def __init__(self) -> None:
        self.ids = _Ids()

    def one(self, text: str) -> int:
        """The number of one string."""
        return self.ids[text]

    def many(self, texts: Iterable[str]) -> list[int]:
        """The numbers of many strings."""
        return list(map(self.ids.__getitem__, texts))

    def table(self) -> tuple[str, ...]:
        """All strings, by number."""
        return tuple(self.ids)


class Builder:
    """Takes pieces of columns (one call a slice of the source) and counts of what was left out."""

    def __init__(self) -> None:
        self.names = Interner()
        self.threads: dict[tuple[int | str, int | str], int] = {}
        self.dropped: Counter[str] = Counter()
        self.repaired: Counter[str] = Counter()
        self.read = 0
        self._pieces: dict[str, list[NDArray[np.generic]]] = {column: [] for column in _DTYPES}

    def thread_ids(self, pids: Sequence[int | str], tids: Sequence[int | str]) -> Int32:
        """The numbers of threads; ids written as text of digits equal the number."""
        try:  # nearly always both are numbers, of a handful of threads
            keys = np.stack((np.array(pids, dtype=np.int64), np.array(tids, dtype=np.int64)))
        except (ValueError, TypeError, OverflowError):
            return np.array(self._thread_ids(pids, tids), dtype=np.int32)
        if not keys.size:
            return np.empty(0, dtype=np.int32)
        mixed = keys[0] * np.int64(1_000_003) + keys[1]  # a number a pair; checked below, so it need not be perfect
        _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
        if not (keys[:, first[which]] == keys).all():
            return np.array(self._thread_ids(pids, tids), dtype=np.int32)
        pairs = sorted(first.tolist())  # in order of appearance
        found = self._thread_ids([int(keys[0, at]) for at in pairs], [int(keys[1, at]) for at in pairs])
        numbers = dict(zip(pairs, found, strict=True))
        return np.array([numbers[at] for at in first.tolist()], dtype=np.int32)[which]

    def _thread_ids(self, pids: Sequence[int | str], tids: Sequence[int | str]) -> list[int]:
        known = self.threads
        found: list[int] = []
        for key in zip(pids, tids, strict=True):
            number = known.get(key)
            if number is None:
                plain = (plain_id(key[0]), plain_id(key[1]))
                number = known.setdefault(plain, len(set(known.values())))
                known[key] = number
            found.append(number)
        return found

    def add(self, n: int, **columns: object) -> None:
        """Add `n` events. A column that is left out, or None, is missing for them."""
        for column, dtype in _DTYPES.items():
            values = columns.get(column)
            if values is None:
                if column in _OPTIONAL:
                    self._pieces[column].append(np.broadcast_to(np.asarray(MISSING, dtype=dtype), n))
                else:
                    self._pieces[column].append(np.full(n, MISSING, dtype=dtype))
            else:
                self._pieces[column].append(np.asarray(values, dtype=dtype))

    def finish(
        self,
        *,
        format_: str,
        path: str | None,
        base_ns: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        devices: tuple[Device, ...] = (),
        complete: bool = True,
        notes: Sequence[str] = (),
    ) -> Timeline:
        """Join the pieces, keep out impossible events (counted), and hand over the timeline."""
        columns: dict[str, Any] = {column: self._join(column) for column in _DTYPES}
        keep, dropped = clean(columns["kind"], columns["start_ns"], columns["end_ns"])
        self.dropped.update(dropped)
        if keep is not None:
            columns = {column: values[keep] for column, values in columns.items()}
        n = columns["kind"].shape[0]
        unassigned = np.broadcast_to(np.int32(MISSING), n)
        labels: dict[int, Thread] = {}
        for (pid, tid), number in self.threads.items():
            labels.setdefault(number, Thread(pid=plain_id(pid), tid=plain_id(tid)))
        counts = ReadCounts(
            read=self.read,
            kept=n,
            dropped=dict(self.dropped),
            repaired=dict(self.repaired),
        )
        source = Source(
            format=format_,
            path=path,
            base_ns=base_ns,
            rank=rank,
            world_size=world_size,
            devices=devices,
            complete=complete,
            counts=counts,
            notes=tuple(notes),
        )
        return Timeline(
            **columns,
            step=unassigned,
            phase=unassigned,
            names=self.names.table(),
            threads=tuple(labels[number] for number in range(len(labels))),
            source=source,
        )

    def _join(self, column: str) -> NDArray[np.generic]:
        pieces = self._pieces[column]
        dtype = _DTYPES[column]
        if column in _OPTIONAL and all(piece.strides == (0,) for piece in pieces):
            joined = np.broadcast_to(np.asarray(MISSING, dtype=dtype), sum(len(piece) for piece in pieces))
        else:
            joined = np.concatenate(pieces) if pieces else np.empty(0, dtype=dtype)
        self._pieces[column] = []  # the pieces are not needed twice, and traces are large
        return joined


def plain_id(label: int | str) -> int | str:
    """A process or thread id: text of digits is the number (old traces write both for one thread)."""
    if isinstance(label, str) and label.isdigit():
        return int(label)
    return label
