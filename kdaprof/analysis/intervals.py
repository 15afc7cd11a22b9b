"""Unions of time intervals in integer nanoseconds, with numpy and without loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdaprof.timeline.columns import Index, Int64


@dataclass(frozen=True, slots=True)
class Coverage:
    """The union of intervals, event by event, in order of start.

    For the event at position i of `order` (an index into the intervals given, [n]): `added_ns` is what it adds
    to the union (each instant belongs to the event that began first), `gap_ns` the uncovered time right before
    it (0 for the first), `reach_ns` where the union stood before it, `before` the position of the event that
    reached there (-1 for the first).
    """

    order: Index
    start_ns: Int64
    end_ns: Int64
    added_ns: Int64
    gap_ns: Int64
    reach_ns: Int64
    before: Index

    @property
    def total_ns(self) -> int:
        """Length of the union."""
        return int(self.added_ns.sum())

    @property
    def gap_total_ns(self) -> int:
        """Uncovered time between the first start and the last end."""
        return int(self.gap_ns.sum())


def cover(start_ns: Int64, end_ns: Int64) -> Coverage:
    """The coverage of intervals [n]; at equal starts in the order given. Work is O(n log n)."""
    order = np.argsort(start_ns, kind="stable")
    start, end = start_ns[order], end_ns[order]
    n = order.size
    if not n:
        empty = np.empty(0, dtype=np.int64)
        return Coverage(order, empty, empty, empty, empty, empty, np.empty(0, dtype=np.intp))
    furthest = np.maximum.accumulate(end)
    reach = np.concatenate((start[:1], furthest[:-1]))
    # The event that set the furthest end so far: the last one that raised it.
    raised = np.concatenate((np.ones(1, dtype=np.bool_), end[1:] > furthest[:-1]))
    setter = np.maximum.accumulate(np.where(raised, np.arange(n), 0))
    before = np.concatenate((np.array([-1]), setter[:-1])).astype(np.intp)
    added = np.maximum(end - np.maximum(start, reach), 0)
    gap = np.maximum(start - reach, 0)
    return Coverage(order, start, end, added, gap, reach, before)


def union_ns(start_ns: Int64, end_ns: Int64) -> int:
    """Length of the union of intervals [n]."""
    return cover(start_ns, end_ns).total_ns


class Covered:
    """Disjoint, sorted intervals that can be asked how much of any span they cover."""

    def __init__(self, start_ns: Int64, end_ns: Int64) -> None:
        order = np.argsort(start_ns, kind="stable")
        start = start_ns[order]
        reach = np.maximum.accumulate(end_ns[order])
        opens = np.ones(start.size, dtype=np.bool_)
        opens[1:] = start[1:] > reach[:-1]
        first = np.flatnonzero(opens)
        self.start_ns: Int64 = start[first]
        self.end_ns: Int64 = reach[np.append(first[1:] - 1, start.size - 1)] if start.size else start
        self._sum = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.end_ns - self.start_ns)))

    def until(self, time_ns: Int64) -> Int64:
        """Covered nanoseconds before each time [m]."""
        if not self.start_ns.size:
            return np.zeros(time_ns.shape, dtype=np.int64)
        index = np.searchsorted(self.start_ns, time_ns, side="right")
        last = np.maximum(index - 1, 0)
        inside = np.clip(time_ns - self.start_ns[last], 0, self.end_ns[last] - self.start_ns[last])
        return np.where(index > 0, self._sum[last] + inside, 0)

    def within(self, start_ns: Int64, end_ns: Int64) -> Int64:
        """Covered nanoseconds of each span [m]; spans that end before they begin cover nothing."""
        return np.where(end_ns > start_ns, self.until(np.maximum(start_ns, end_ns)) - self.until(start_ns), 0)
