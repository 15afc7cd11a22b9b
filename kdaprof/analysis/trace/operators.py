"""Operators and modules, ranked by the idle they cause: whose launch did the device wait for?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.trace.context import Context, DeviceView
from kdaprof.timeline.columns import Bool, Index, Int32, Int64, Kind, Timeline

NONE = -1
_AUTOGRAD = "autograd::engine::evaluate_function: "
_MODULE = "nn.Module: "


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """The outermost operators of one name (or the innermost modules), with what they launched.

    `idle_ns`: gaps that ended with an event they launched · `host_ns`: their time on the host.
    """

    name: str
    calls: int
    launches: int
    device_events: int
    busy_ns: int
    idle_ns: int
    host_ns: int


def operator_table(context: Context, view: DeviceView) -> tuple[OperatorRow, ...]:
    """By outermost operator around the launch call, most idle first. Empty for a trace without operators."""
    timeline = context.timeline
    rows = np.flatnonzero(timeline.of_kind(Kind.CPU_OP))
    return _table(context, view, _Outermost(timeline, rows), _operator_name)


def module_table(context: Context, view: DeviceView) -> tuple[OperatorRow, ...]:
    """By innermost `nn.Module` around the launch call (forward only: the backward has no module frames)."""
    timeline = context.timeline
    modules = np.array([name.startswith(_MODULE) for name in timeline.names] or [False], dtype=np.bool_)
    rows = (
        np.flatnonzero(timeline.of_kind(Kind.PYTHON) & modules[timeline.name])
        if len(timeline)
        else np.empty(0, np.intp)
    )
    return _table(context, view, _Nested(timeline, rows), lambda name: name.removeprefix(_MODULE))


def operator_at(context: Context, calls: Index) -> list[str | None]:
    """The outermost operator around each call, None where there is none."""
    timeline = context.timeline
    found = _Outermost(timeline, np.flatnonzero(timeline.of_kind(Kind.CPU_OP))).at(
        timeline.start_ns[calls], timeline.thread[calls]
    )
    return [None if row == NONE else _operator_name(timeline.name_of(row)) for row in found.tolist()]


def _operator_name(name: str) -> str:
    return name.removeprefix(_AUTOGRAD)


class _Nested:
    """Innermost of ranges that nest on each thread. Every range knows the one around it."""

    def __init__(self, timeline: Timeline, rows: Index) -> None:
        self.timeline = timeline
        self.rows = rows[np.lexsort((-timeline.end_ns[rows], timeline.start_ns[rows], timeline.thread[rows]))]
        self.thread = timeline.thread[self.rows]
        self.around = self._parents()

    def at(self, time_ns: Int64, thread: Int32) -> Index:
        """Row of the innermost range of the thread at each time [m], `NONE` outside."""
        found = np.full(time_ns.shape, NONE, dtype=np.intp)
        for one in np.unique(thread).tolist():
            begin, end = np.searchsorted(self.thread, [one, one + 1])
            mine = np.flatnonzero(thread == one)
            if begin == end:
                continue
            start = self.timeline.start_ns[self.rows[begin:end]]
            place = begin + np.searchsorted(start, time_ns[mine], side="right") - 1
            place = np.where(place < begin, NONE, place)
            while True:  # climb out of ranges that are over; the depth of nesting bounds the rounds
                over = (place != NONE) & (self.timeline.end_ns[self.rows[place]] <= time_ns[mine])
                if not over.any():
                    break
                place = np.where(over, self.around[place], place)
            found[mine] = np.where(place == NONE, NONE, self.rows[place])
        return found

    def _parents(self) -> Index:
        around = np.full(self.rows.size, NONE, dtype=np.intp)
        ends, threads = self.timeline.end_ns[self.rows].tolist(), self.thread.tolist()
        starts = self.timeline.start_ns[self.rows].tolist()
        stack: list[int] = []
        for index in range(len(ends)):
            while stack and (threads[stack[-1]] != threads[index] or ends[stack[-1]] <= starts[index]):
                stack.pop()
            around[index] = stack[-1] if stack else NONE
            stack.append(index)
        return around


class _Outermost:
    """Outermost of ranges that nest on each thread: those no other one holds. All of it vectorised."""

    def __init__(self, timeline: Timeline, rows: Index) -> None:
        self.timeline = timeline
        order = np.lexsort((-timeline.end_ns[rows], timeline.start_ns[rows], timeline.thread[rows]))
        ordered = rows[order]
        thread, start, end = timeline.thread[ordered], timeline.start_ns[ordered], timeline.end_ns[ordered]
        outer: Bool = np.ones(ordered.size, dtype=np.bool_)
        if ordered.size > 1:
            borders = np.flatnonzero(np.diff(thread)) + 1
            for begin, stop in zip([0, *borders.tolist()], [*borders.tolist(), ordered.size], strict=True):
                reach = np.maximum.accumulate(end[begin:stop])
                outer[begin + 1 : stop] = start[begin + 1 : stop] >= reach[:-1]
        self.rows = ordered[outer]
        self.thread = thread[outer]

    def at(self, time_ns: Int64, thread: Int32) -> Index:
        """Row of the outermost range of the thread at each time [m], `NONE` outside."""
        found = np.full(time_ns.shape, NONE, dtype=np.intp)
        for one in np.unique(thread).tolist():
            begin, end = np.searchsorted(self.thread, [one, one + 1])
            mine = np.flatnonzero(thread == one)
            if begin == end:
                continue
            rows = self.rows[begin:end]
            place = np.searchsorted(self.timeline.start_ns[rows], time_ns[mine], side="right") - 1
            row = rows[np.maximum(place, 0)]
            inside = (place >= 0) & (self.timeline.end_ns[row] > time_ns[mine])
            found[mine] = np.where(inside, row, NONE)
        return found


def _table(
    context: Context, view: DeviceView, finder: _Nested | _Outermost, plain: Callable[[str], str]
) -> tuple[OperatorRow, ...]:
    if not finder.rows.size:
        return ()
    timeline, links = context.timeline, context.links
    owner = np.full(len(timeline), NONE, dtype=np.int64)  # by call: name id of its operator
    calls = links.launches
    at = finder.at(timeline.start_ns[calls], timeline.thread[calls])
    owner[calls] = np.where(at == NONE, NONE, timeline.name[at])
    rows = view.work.ordered_rows
    call = links.call_of[rows]
    of_event = np.where(call >= 0, owner[call], NONE)
    call = links.call_of[view.gaps.following]
    of_gap = np.where(call >= 0, owner[call], NONE)
    n = len(timeline.names)
    names, lengths = timeline.name[finder.rows], timeline.end_ns[finder.rows] - timeline.start_ns[finder.rows]
    columns = {
        "calls": _sums(names, np.ones(names.size, dtype=np.int64), n),
        "launches": _sums(owner[calls], np.ones(calls.size, dtype=np.int64), n),
        "device_events": _sums(of_event, np.ones(of_event.size, dtype=np.int64), n),
        "busy_ns": _sums(of_event, view.work.coverage.added_ns, n),
        "idle_ns": _sums(of_gap, view.gaps.length_ns, n),
        "host_ns": _sums(names, lengths, n),
    }
    table = [
        OperatorRow(name=plain(timeline.names[name]), **{key: int(values[name]) for key, values in columns.items()})
        for name in np.flatnonzero(columns["launches"] + columns["device_events"]).tolist()
    ]
    return tuple(sorted(table, key=lambda row: (-row.idle_ns, -row.busy_ns, row.name)))


def _sums(of: Int64 | Int32, values: Int64, n: int) -> Int64:
    sums = np.zeros(n, dtype=np.int64)
    known = of != NONE
    np.add.at(sums, of[known], values[known])
    return sums
