"""Device busy: the union over all streams of kernels, copies and sets, those inside graphs included."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.intervals import Coverage, cover, union_ns
from kdaprof.analysis.trace.links import Links, link
from kdaprof.errors import UsageError
from kdaprof.timeline.columns import COPY_KINDS, Bool, Index, Int64, Kind, Timeline

Window = tuple[int, int]
"""(start_ns, end_ns) on the timeline's clock; the start belongs to it, the end does not."""


@dataclass(frozen=True, slots=True)
class BusySpan:
    """One device over one window. `busy_ns + idle_ns == span_ns`; kernels and copies may overlap each other.

    `overlap_ns`: time in which at least two events ran at once (streams, or a copy beside a kernel);
    `copy_overlap_ns`: the part of it in which a kernel hid a copy.
    """

    device: int
    start_ns: int
    end_ns: int
    busy_ns: int
    kernel_busy_ns: int
    copy_busy_ns: int
    overlap_ns: int
    events: int

    @property
    def span_ns(self) -> int:
        """From the first start to the last end."""
        return self.end_ns - self.start_ns

    @property
    def idle_ns(self) -> int:
        """Gaps between device events: `span_ns - busy_ns`."""
        return self.span_ns - self.busy_ns

    @property
    def copy_overlap_ns(self) -> int:
        """Time in which kernels and copies ran at once."""
        return self.kernel_busy_ns + self.copy_busy_ns - self.busy_ns


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """The events of one device (rows of the timeline [m]) with their coverage."""

    device: int
    rows: Index
    coverage: Coverage

    @property
    def ordered_rows(self) -> Index:
        """Rows of the timeline [m] in order of device start."""
        ordered: Index = self.rows[self.coverage.order]
        return ordered


def launch_time_ns(timeline: Timeline, links: Links) -> Int64:
    """When each event [n] was launched: the start of its launch call, its own start where it has none."""
    times = timeline.start_ns.copy()
    linked = np.flatnonzero(links.call_of >= 0)
    times[linked] = timeline.start_ns[links.call_of[linked]]
    return times


def device_rows(timeline: Timeline, device: int, *, window: Window | None = None, links: Links | None = None) -> Index:
    """Rows of one device's events; with a window those launched in it (unlaunched ones by device time)."""
    rows = np.flatnonzero(timeline.device_mask & (timeline.device == device))
    if window is None:
        return rows
    times = launch_time_ns(timeline, links if links is not None else link(timeline))[rows]
    return rows[(times >= window[0]) & (times < window[1])]


def device_work(timeline: Timeline, device: int, rows: Index | None = None) -> DeviceWork:
    """The coverage of these rows, by default of all events of the device."""
    chosen = device_rows(timeline, device) if rows is None else rows
    return DeviceWork(device, chosen, cover(timeline.start_ns[chosen], timeline.end_ns[chosen]))


def device_busy(
    timeline: Timeline, device: int | None = None, window: Window | None = None, *, links: Links | None = None
) -> BusySpan | None:
    """Busy and idle of a device; None when it did nothing.

    `device` may be left out where one device did work. With `window`, the events launched in it count.
    Raises `UsageError` when no device is named and several did work.
    """
    if device is None:
        found = timeline.devices()
        if len(found) > 1:
            raise UsageError(f"the timeline has devices {', '.join(map(str, found))}: name one")
        if not found:
            return None
        device = found[0]
    rows = device_rows(timeline, device, window=window, links=links)
    return busy_of(timeline, device, rows)


def busy_of(
    timeline: Timeline, device: int, rows: Index, *, start_ns: Int64 | None = None, end_ns: Int64 | None = None
) -> BusySpan | None:
    """Busy and idle of these device events; None when there are none. Times of their own replace the timeline's."""
    if not rows.size:
        return None
    start = timeline.start_ns[rows] if start_ns is None else start_ns
    end = timeline.end_ns[rows] if end_ns is None else end_ns
    kinds = timeline.kind[rows]
    kernels: Bool = kinds == Kind.KERNEL
    copies = np.isin(kinds, COPY_KINDS)
    whole = cover(start, end)
    return BusySpan(
        device=device,
        start_ns=int(start.min()),
        end_ns=int(end.max()),
        busy_ns=whole.total_ns,
        kernel_busy_ns=union_ns(start[kernels], end[kernels]),
        copy_busy_ns=union_ns(start[copies], end[copies]),
        overlap_ns=_at_least_two_ns(start, end),
        events=int(rows.size),
    )


def _at_least_two_ns(start: Int64, end: Int64) -> int:
    """Time covered by two or more of the intervals: a sweep over their borders."""
    times = np.concatenate((start, end))
    steps = np.concatenate((np.ones(start.size, dtype=np.int64), np.full(end.size, -1, dtype=np.int64)))
    order = np.argsort(times, kind="stable")
    depth = np.cumsum(steps[order])
    lengths = np.diff(times[order], append=times[order][-1:])
    return int(lengths[depth >= 2].sum())
