"""A running loop's steps and phases on the device: nothing was synchronised between them, so work trails its launch.

A border of the loop lies on the device where everything launched before it has ended, or at the host's border when
that is later: where a CUDA event recorded there would fall. So neighbours share borders, and the phases of a step
and what lies between them add up to it: wall = busy + head + gaps + drain for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.trace.busy import BusySpan, Window, device_rows, launch_time_ns
from kdaprof.analysis.trace.host_state import HostState
from kdaprof.analysis.trace.idle import IdleSplit
from kdaprof.analysis.trace.launches import KernelRow, kernel_table, launch_count
from kdaprof.analysis.trace.links import Links, link
from kdaprof.analysis.trace.repeats import DeviceSplit, RepeatSplit, split_device
from kdaprof.timeline.columns import Kind, Timeline
from kdaprof.timeline.loop_ranges import OTHER, PHASE_RANGE, STEP_RANGE, WHOLE

_STEP = re.compile(re.escape(STEP_RANGE) + r"\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a phase: its step, and its borders on the host."""

    step: int
    window: Window


def entries_of(timeline: Timeline, phase: str) -> tuple[Entry, ...]:
    """Every entry of a phase (`step`: the steps, `other`: what lies outside all phases), in order of time."""
    steps = _ranges(timeline, lambda name: _STEP.match(name) is not None)
    numbered = [(int(name.removeprefix(STEP_RANGE)), window) for name, window in steps]
    if phase == WHOLE:
        return tuple(Entry(step=number, window=window) for number, window in numbered)
    if phase == OTHER:
        inside = [window for _, window in _ranges(timeline, lambda name: name.startswith(PHASE_RANGE))]
        return tuple(Entry(step=number, window=gap) for number, window in numbered for gap in _without(window, inside))
    mine = _ranges(timeline, lambda name: name == PHASE_RANGE + phase)
    return tuple(
        Entry(step=number, window=window)
        for _, window in mine
        for number, step in numbered
        if step[0] <= window[0] < step[1]
    )


def loop_splits(timeline: Timeline, phase: str, *, device: int | None) -> tuple[RepeatSplit, ...]:
    """Split every entry of a phase; `index` is its step, so that a phase entered twice has two splits of one index.

    An entry that launched nothing, in a timeline that shows the device at work, has a busy time of 0. `device`: None
    when no device did anything.
    """
    links = link(timeline)
    host = HostState(timeline, links)
    return tuple(_split(timeline, links, host, entry, device) for entry in entries_of(timeline, phase))


def loop_tables(timeline: Timeline, phase: str) -> tuple[tuple[KernelRow, ...], ...]:
    """Device events by name that each step launched in this phase, a table a step."""
    links = link(timeline)
    tables: dict[int, list[KernelRow]] = {}
    for entry in entries_of(timeline, phase):
        tables.setdefault(entry.step, []).extend(kernel_table(timeline, entry.window, links=links))
    return tuple(tuple(rows) for rows in tables.values())


def _split(timeline: Timeline, links: Links, host: HostState, entry: Entry, device: int | None) -> RepeatSplit:
    launches = launch_count(timeline, entry.window, links=links)
    if device is None:
        return RepeatSplit(
            index=entry.step, start_ns=entry.window[0], end_ns=entry.window[1], launches=launches, device=None
        )
    start, end = (_on_device(timeline, links, device, border) for border in entry.window)
    rows = device_rows(timeline, device, window=entry.window, links=links)
    rows = rows[(timeline.end_ns[rows] > start) & (timeline.start_ns[rows] < end)]
    split = split_device(timeline, links, host, (start, end), device, rows) if rows.size else _idle(device, start, end)
    return RepeatSplit(index=entry.step, start_ns=start, end_ns=end, launches=launches, device=split)


def _on_device(timeline: Timeline, links: Links, device: int, border: int) -> int:
    """Where a mark put into the queue at `border` would be reached."""
    rows = device_rows(timeline, device)
    before = rows[launch_time_ns(timeline, links)[rows] < border]
    return max(border, int(timeline.end_ns[before].max())) if before.size else border


def _idle(device: int, start: int, end: int) -> DeviceSplit:
    nothing = BusySpan(device, start, start, 0, 0, 0, 0, 0)
    return DeviceSplit(
        busy=nothing, head=IdleSplit(), gaps=IdleSplit(), drain_ns=end - start, drained_by_sync_ns=0, latency=None
    )


def _ranges(timeline: Timeline, wanted: Callable[[str], bool]) -> list[tuple[str, Window]]:
    named = np.array([wanted(name) for name in timeline.names] or [False], dtype=np.bool_)
    rows = np.flatnonzero(timeline.of_kind(Kind.ANNOTATION) & named[timeline.name])
    found = [(timeline.name_of(row), (int(timeline.start_ns[row]), int(timeline.end_ns[row]))) for row in rows.tolist()]
    return sorted(found, key=lambda one: one[1])


def _without(window: Window, inside: list[Window]) -> list[Window]:
    """The parts of `window` that no range covers."""
    gaps, at = [], window[0]
    for begin, end in sorted(inside):
        if begin >= window[1] or end <= at:
            continue
        if begin > at:
            gaps.append((at, begin))
        at = max(at, end)
    if at < window[1]:
        gaps.append((at, window[1]))
    return gaps


def idle_share(timeline: Timeline) -> float | None:
    """Share of the steps' device time in which the device did nothing; None when no device event was recorded."""
    devices = timeline.devices()
    if not devices:
        return None
    splits = loop_splits(timeline, WHOLE, device=devices[0])
    wall = sum(split.wall_ns for split in splits)
    return sum(split.idle_ns or 0 for split in splits) / wall if wall else None
