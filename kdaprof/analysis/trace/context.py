"""Everything the analysis of a timeline shares: links, host activity, and where each event was launched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.trace.annotations import NO_RANGE, Finder, Ranges, ranges, step_rows
from kdaprof.analysis.trace.busy import DeviceWork, Window, device_rows, device_work, launch_time_ns
from kdaprof.analysis.trace.host_state import HostState
from kdaprof.analysis.trace.idle import Gaps, gaps_of
from kdaprof.analysis.trace.latency import LaunchLatency, launch_latency
from kdaprof.analysis.trace.links import Links, link
from kdaprof.timeline.columns import CALL_KINDS, MISSING, Index, Int32, Int64, Timeline

NO_STEP = -1


@dataclass(frozen=True, slots=True)
class Steps:
    """Step ranges [s] by start: row, borders, the number in the name (None without)."""

    rows: Index
    start_ns: Int64
    end_ns: Int64
    numbers: tuple[int | None, ...]

    def __len__(self) -> int:
        """Number of steps."""
        return int(self.rows.size)


@dataclass(frozen=True, slots=True)
class Context:
    """A timeline with what the analysis derives once.

    `launch_ns` [n]: when each event was launched · `step_of` [n], `range_of` [n]: step and innermost annotation
    of device events and calls, by the time and thread of the launch (`NO_STEP`, `NO_RANGE` outside).
    """

    timeline: Timeline
    links: Links
    host: HostState
    steps: Steps
    ranges: Ranges
    launch_ns: Int64
    step_of: Int32
    range_of: Int32

    def step_window(self, step: int) -> Window:
        """Host borders of a step."""
        return int(self.steps.start_ns[step]), int(self.steps.end_ns[step])


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device: its events in scope, their coverage, its gaps and its latency."""

    work: DeviceWork
    gaps: Gaps
    latency: LaunchLatency | None

    @property
    def device(self) -> int:
        """Index of the device."""
        return self.work.device


def steps_of(timeline: Timeline, name: str | None = None) -> Steps:
    """The steps of a timeline; with `name` the annotations of this name instead."""
    rows, numbers = step_rows(timeline, name)
    return Steps(rows, timeline.start_ns[rows], timeline.end_ns[rows], numbers)


def make_context(timeline: Timeline, *, step_name: str | None = None) -> Context:
    """Derive the shared part. `step_name`: take the annotations of this name for steps."""
    links = link(timeline)
    steps = steps_of(timeline, step_name)
    rows = steps.rows
    nested = ranges(timeline, rows)
    launch_ns = launch_time_ns(timeline, links)
    thread = timeline.thread.copy()
    linked = np.flatnonzero(links.call_of >= 0)
    thread[linked] = timeline.thread[links.call_of[linked]]
    some = np.flatnonzero(timeline.device_mask | timeline.of_kind(*CALL_KINDS))
    step_of = _located(timeline, steps.start_ns, steps.end_ns, timeline.thread[rows], some, launch_ns, thread)
    range_of = _located(timeline, nested.start_ns, nested.end_ns, nested.thread, some, launch_ns, thread)
    return Context(
        timeline=timeline,
        links=links,
        host=HostState(timeline, links),
        steps=steps,
        ranges=nested,
        launch_ns=launch_ns,
        step_of=step_of,
        range_of=range_of,
    )


def device_view(context: Context, device: int, rows: Index | None = None) -> DeviceView:
    """One device; with `rows` only these events. The latency is always measured over the whole trace."""
    timeline, links = context.timeline, context.links
    everything = device_work(timeline, device)
    latency = launch_latency(timeline, links, everything)
    work = everything if rows is None else device_work(timeline, device, rows)
    return DeviceView(work, gaps_of(timeline, links, context.host, work, latency), latency)


def rows_in_steps(context: Context, device: int, first: int | None, last: int | None) -> Index:
    """Rows of a device launched in steps `first` … `last` − 1 (positions), open where None."""
    rows = device_rows(context.timeline, device)
    step = context.step_of[rows]
    low = 0 if first is None else first
    high = len(context.steps) if last is None else last
    return rows[(step >= low) & (step < high)]


def attributed(timeline: Timeline) -> Timeline:
    """The same timeline with the columns `step` and `phase` filled for device events and calls."""
    context = make_context(timeline)
    names = np.append(context.ranges.name, np.int32(MISSING))  # the last one answers for NO_RANGE
    phase = names[context.range_of].astype(np.int32)
    return timeline.with_launch_context(step=context.step_of, phase=phase)


def _located(
    timeline: Timeline,
    start: Int64,
    end: Int64,
    thread: Int32,
    some: Index,
    launch_ns: Int64,
    launch_thread: Int32,
) -> Int32:
    found = np.full(len(timeline), NO_RANGE, dtype=np.int32)
    if start.size:
        found[some] = Finder(timeline, start, end, thread).at(launch_ns[some], launch_thread[some])
    return found
