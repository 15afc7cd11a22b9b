"""Named ranges of the host: how they nest, and in which one something was launched, across threads."""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass

import numpy as np

from kdaprof.timeline.columns import Index, Int32, Int64, Kind, Timeline

NO_RANGE = -1

STEP_NAME = re.compile(r"ProfilerStep#(\d+)$")
_OTHER_STEP = re.compile(r"(?i)(?:train(?:ing)?[ _-]?)?(?:step|iter(?:ation)?)[ _:#-]*(\d+)$")
_OURS = re.compile(r"kdaprof\.(repeat#|jit)")


@dataclass(frozen=True, slots=True)
class Ranges:
    """Annotations as columns [k], by start: row in the timeline, name id, borders, thread, enclosing range, depth."""

    rows: Index
    name: Int32
    start_ns: Int64
    end_ns: Int64
    thread: Int32
    parent: Index
    depth: Index

    def __len__(self) -> int:
        """Number of ranges."""
        return int(self.rows.size)


class Finder:
    """Finds the innermost range at a time: one of the launching thread, else of a main thread, else of any.

    The backward pass launches from a thread of autograd's own, while its range stands on the main thread; a
    data loader's range on a third thread must not take those launches.
    """

    def __init__(self, timeline: Timeline, start_ns: Int64, end_ns: Int64, thread: Int32) -> None:
        main = np.array([t.pid == t.tid for t in timeline.threads] or [False], dtype=np.bool_)
        self._tables = {
            int(one): _innermost(start_ns, end_ns, np.flatnonzero(thread == one)) for one in np.unique(thread)
        }
        everything = np.arange(start_ns.size)
        on_main = everything[main[thread]] if start_ns.size else everything
        self._fallbacks = [_innermost(start_ns, end_ns, rows) for rows in (on_main, everything)]

    def at(self, time_ns: Int64, thread: Int32) -> Index:
        """The innermost range at each time [m], `NO_RANGE` outside all."""
        found = np.full(time_ns.shape, NO_RANGE, dtype=np.intp)
        for one, table in self._tables.items():
            mine = np.flatnonzero(thread == one)
            found[mine] = _look_up(table, time_ns[mine])
        for table in self._fallbacks:
            open_ = np.flatnonzero(found == NO_RANGE)
            found[open_] = _look_up(table, time_ns[open_])
        return found


def step_rows(timeline: Timeline, name: str | None = None) -> tuple[Index, tuple[int | None, ...]]:
    """Rows of the step ranges by start, and the number each carries in its name.

    `ProfilerStep#N` of the profiler; without any, ranges called step, iteration, train step with a number. With
    `name`: the annotations of exactly this name instead (none of them carries a number).
    """
    annotations = timeline.of_kind(Kind.ANNOTATION)
    if name is not None:
        chosen = np.array([text == name for text in timeline.names] or [False], dtype=np.bool_)
        rows = _sorted_rows(timeline, annotations & _named(timeline, chosen))
        return rows, (None,) * int(rows.size)
    for pattern in (STEP_NAME, _OTHER_STEP):
        matches = {i: m for i, text in enumerate(timeline.names) if (m := pattern.match(text))}
        if matches:
            rows = _sorted_rows(timeline, annotations & np.isin(timeline.name, list(matches)))
            if rows.size:
                return rows, tuple(int(matches[int(timeline.name[row])].group(1)) for row in rows.tolist())
    return np.empty(0, dtype=np.intp), ()


def ranges(timeline: Timeline, steps: Index) -> Ranges:
    """All annotations except steps and the probe's own marks, with their nesting."""
    ours = np.array([_OURS.match(name) is not None for name in timeline.names] or [False], dtype=np.bool_)
    mask = timeline.of_kind(Kind.ANNOTATION) & ~_named(timeline, ours)
    mask[steps] = False
    mask &= timeline.end_ns > timeline.start_ns
    rows = np.flatnonzero(mask)
    rows = rows[np.lexsort((-timeline.end_ns[rows], timeline.start_ns[rows]))]
    start, end, thread = timeline.start_ns[rows], timeline.end_ns[rows], timeline.thread[rows]
    parent = _parents(timeline, start, end, thread)
    depth = np.zeros(rows.size, dtype=np.intp)
    for child, above in enumerate(parent.tolist()):  # a parent begins no later, so it stands before its child
        depth[child] = depth[above] + 1 if above != NO_RANGE else 0
    return Ranges(rows, timeline.name[rows], start, end, thread, parent, depth)


def common(ranges_: Ranges, one: Index, other: Index) -> Index:
    """The innermost range that holds both ranges of each pair [m]; `NO_RANGE` when there is none."""
    one, other = one.copy(), other.copy()
    if not len(ranges_):
        return one
    while True:
        apart = np.flatnonzero(one != other)
        if not apart.size:
            return one
        left, right = one[apart], other[apart]
        deep_left = np.where(left == NO_RANGE, -1, ranges_.depth[left])
        deep_right = np.where(right == NO_RANGE, -1, ranges_.depth[right])
        one[apart] = np.where(deep_left >= deep_right, ranges_.parent[left], left)
        other[apart] = np.where(deep_right >= deep_left, ranges_.parent[right], right)


def _parents(timeline: Timeline, start: Int64, end: Int64, thread: Int32) -> Index:
    """The enclosing range of each range: of its own thread, else of a main thread, if it encloses it wholly."""
    n = start.size
    parent = np.full(n, NO_RANGE, dtype=np.intp)
    main = np.array([t.pid == t.tid for t in timeline.threads] or [False], dtype=np.bool_)
    stacks: dict[int, list[int]] = {}
    main_stacks: dict[int, list[int]] = {}
    for index, (begin, finish, on) in enumerate(zip(start.tolist(), end.tolist(), thread.tolist(), strict=True)):
        own = _trim(stacks.setdefault(on, []), end, begin, finish)
        if own:
            parent[index] = own[-1]
        else:
            above = [_trim(stack, end, begin, finish)[-1:] for key, stack in main_stacks.items() if key != on]
            candidates = [one[0] for one in above if one]
            parent[index] = max(candidates, default=NO_RANGE)
        stacks[on].append(index)
        if main[on]:
            main_stacks[on] = stacks[on]
    return parent


def _trim(stack: list[int], end: Int64, begin: int, finish: int) -> list[int]:
    """Drop ranges that are over; what is left and reaches beyond `finish` encloses."""
    while stack and end[stack[-1]] <= begin:
        stack.pop()
    return [index for index in stack if end[index] >= finish]


def _innermost(start: Int64, end: Int64, which: Index) -> tuple[Int64, Index]:
    """Times at which the innermost of these ranges changes, and which it is from there on."""
    borders = sorted([(int(end[i]), 0, int(i)) for i in which] + [(int(start[i]), 1, int(i)) for i in which])
    open_: list[tuple[int, int]] = []
    over: set[int] = set()
    times: list[int] = []
    found: list[int] = []
    for time, opens, index in borders:
        if opens:
            heapq.heappush(open_, (-int(start[index]), -index))
        else:
            over.add(index)
        while open_ and -open_[0][1] in over:
            heapq.heappop(open_)
        now = -open_[0][1] if open_ else NO_RANGE
        if times and times[-1] == time:
            found[-1] = now
        else:
            times.append(time)
            found.append(now)
    return np.array(times, dtype=np.int64), np.array(found, dtype=np.intp)


def _look_up(table: tuple[Int64, Index], time_ns: Int64) -> Index:
    times, found = table
    if not times.size:
        return np.full(time_ns.shape, NO_RANGE, dtype=np.intp)
    at = np.searchsorted(times, time_ns, side="right") - 1
    return np.where(at >= 0, found[np.maximum(at, 0)], NO_RANGE)


def _named(
    timeline: Timeline, names: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return names[timeline.name] if len(timeline) else np.zeros(0, dtype=np.bool_)


def _sorted_rows(timeline: Timeline, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Index:
    rows = np.flatnonzero(mask)
    ordered: Index = rows[np.argsort(timeline.start_ns[rows], kind="stable")]
    return ordered
