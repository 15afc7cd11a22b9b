"""One profiled repeat as lanes of events for the zoomable timeline: host, launches, device streams, idle by class."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from kdaprof.analysis.intervals import cover
from kdaprof.analysis.trace.busy import DeviceWork, Window, device_rows
from kdaprof.analysis.trace.host_state import HostState
from kdaprof.analysis.trace.idle import CLASSES, NO_EVENT, Gaps, classify, gaps_of
from kdaprof.analysis.trace.latency import launch_latency
from kdaprof.analysis.trace.links import link
from kdaprof.analysis.trace.repeats import repeat_windows
from kdaprof.report.html.charts.base import BUSY, IDLE, safe
from kdaprof.timeline.columns import CALL_KINDS, Index, Kind, Timeline

MOST_EVENTS = 2000
"""Of one timeline's host lanes, of its device lanes and of its idle; the shortest are left out, and that is said."""
_LONGEST_NAME = 110


def timeline_data(timeline: Timeline, most: int = MOST_EVENTS) -> dict[str, Any] | None:
    """Lanes of the repeat of median length: `[{lane, colour, step[], dur[], name[]}]` in ns.

    `step` is from one start to the next, the first from the call's start: half the digits of the starts themselves.

    None when no repeat launched device work. Gaps are cut by class in the order of the contract.
    """
    links = link(timeline)
    windows = repeat_windows(timeline, links=links)
    devices = timeline.devices()
    if not windows or not devices:
        return None
    index, window = sorted(windows, key=lambda one: one[1][1] - one[1][0])[len(windows) // 2]
    rows = device_rows(timeline, devices[0], window=window, links=links)
    rows = rows[(timeline.end_ns[rows] > window[0]) & (timeline.start_ns[rows] < window[1])]
    if not rows.size:
        return None
    names = _Names()
    start, end = np.clip(timeline.start_ns[rows], *window), np.clip(timeline.end_ns[rows], *window)
    work = DeviceWork(devices[0], rows, cover(start, end))
    lanes = [*_host(timeline, window, names, most), *_device(timeline, rows, window, names, most)]
    lanes += _idle(_gaps(timeline, work, window), int(end.max()), window, most)
    shown = sum(len(lane["dur"]) for lane in lanes if lane["kind"] != "idle")
    total = int(rows.size) + sum(int(r.size) for r in _host_rows(timeline, window))
    return {
        "names": names.listed,
        "lanes": lanes,
        "wall": window[1] - window[0],
        "repeat": index,
        "repeats": len(windows),
        "left_out": total - shown,
    }


class _Names:
    """Names once each, so that an event carries a number."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def of(self, name: str) -> int:
        short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        return self._ids.setdefault(safe(short), len(self._ids))

    @property
    def listed(self) -> list[str]:
        return list(self._ids)


def _host_rows(timeline: Timeline, window: Window) -> tuple[Index, Index]:
    """Operators and calls of the runtime that began in the window."""
    inside = (timeline.start_ns >= window[0]) & (timeline.start_ns < window[1])
    return (
        np.flatnonzero(inside & timeline.of_kind(Kind.CPU_OP)),
        np.flatnonzero(inside & timeline.of_kind(*CALL_KINDS)),
    )


def _host(timeline: Timeline, window: Window, names: _Names, most: int) -> list[dict[str, Any]]:
    operators, calls = _host_rows(timeline, window)
    lanes = []
    titles = {int(t): f"thread {i + 1}" for i, t in enumerate(np.unique(timeline.thread[np.append(operators, calls)]))}
    for what, rows, colour in (("operators", operators, "#8c9bd6"), ("CUDA calls", calls, "#f2b10c")):
        for thread, title in titles.items():
            mine = _outermost(timeline, rows[timeline.thread[rows] == thread]) if what == "operators" else rows
            mine = _longest(timeline, mine[timeline.thread[mine] == thread], most // 2)
            if mine.size:
                lane = f"host {what}" + (f", {title}" if len(titles) > 1 else "")
                lanes.append(_lane(timeline, mine, window, names, lane, colour, "host"))
    return lanes


def _outermost(timeline: Timeline, rows: Index) -> Index:
    """The operators that no other operator of the thread holds: what Python called."""
    order = rows[np.lexsort((-timeline.end_ns[rows], timeline.start_ns[rows]))]
    if not order.size:
        return order
    reach = np.maximum.accumulate(timeline.end_ns[order])
    outer = np.ones(order.size, dtype=np.bool_)
    outer[1:] = timeline.start_ns[order][1:] >= reach[:-1]
    kept: Index = order[outer]
    return kept


def _device(timeline: Timeline, rows: Index, window: Window, names: _Names, most: int) -> list[dict[str, Any]]:
    lanes = []
    for stream in np.unique(timeline.stream[rows]).tolist():
        mine = _longest(timeline, rows[timeline.stream[rows] == stream], most)
        lanes.append(_lane(timeline, mine, window, names, f"GPU stream {stream}", BUSY, "device"))
    return lanes


def _longest(timeline: Timeline, rows: Index, most: int) -> Index:
    if rows.size > most:
        rows = rows[np.argsort(timeline.start_ns[rows] - timeline.end_ns[rows], kind="stable")[:most]]
    ordered: Index = rows[np.argsort(timeline.start_ns[rows], kind="stable")]
    return ordered


def _lane(
    timeline: Timeline, rows: Index, window: Window, names: _Names, lane: str, colour: str, kind: str
) -> dict[str, Any]:
    start = np.clip(timeline.start_ns[rows], *window)
    end = np.clip(timeline.end_ns[rows], *window)
    ids = [names.of(timeline.name_of(row)) for row in rows.tolist()]
    return _columns(lane, colour, kind, (start - window[0]).tolist(), (end - start).tolist(), ids)


def _gaps(timeline: Timeline, work: DeviceWork, window: Window) -> tuple[Gaps, ...]:
    """The head, from the call's start to the first device event, then every gap; classified."""
    links = link(timeline)
    host, latency = HostState(timeline, links), launch_latency(timeline, links, work)
    first = int(work.coverage.start_ns[0])
    one = int(first > window[0])
    head = classify(
        timeline,
        links,
        host,
        start_ns=np.full(one, window[0], dtype=np.int64),
        end_ns=np.full(one, first, dtype=np.int64),
        previous=np.full(one, NO_EVENT, dtype=np.intp),
        following=work.ordered_rows[:one],
        latency=latency,
    )
    return head, gaps_of(timeline, links, host, work, latency)


def _idle(gaps: Sequence[Gaps], last: int, window: Window, most: int) -> list[dict[str, Any]]:
    """A trace a class on one lane; within a gap the classes stand in the order of the contract."""
    lengths_of_all = np.sort(np.concatenate([group.classes.ravel() for group in gaps]))[::-1]
    least = int(lengths_of_all[most - 1]) if lengths_of_all.size > most else 1
    parts: dict[str, tuple[list[int], list[int]]] = {}
    for group in gaps:
        at = group.start_ns.copy()
        for row, name in enumerate(CLASSES):
            spent = group.classes[row]
            some = np.flatnonzero(spent >= max(least, 1))
            starts, lengths = parts.setdefault(name, ([], []))
            starts += (at[some] - window[0]).tolist()
            lengths += spent[some].tolist()
            at = at + spent
    if window[1] > last:
        parts["drain"] = ([last - window[0]], [window[1] - last])
    lanes = []
    for name, (starts, lengths) in parts.items():
        if starts:
            title, colour = IDLE[name]
            lanes.append(_columns("GPU idle", colour, "idle", starts, lengths, []) | {"title": title})
    return lanes


def _columns(lane: str, colour: str, kind: str, start: list[int], dur: list[int], name: list[int]) -> dict[str, Any]:
    steps = [b - a for a, b in pairwise([0, *start])]
    return {"lane": lane, "colour": colour, "kind": kind, "title": lane, "step": steps, "dur": dur, "name": name}
