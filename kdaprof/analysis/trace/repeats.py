"""The profiled repeats of a probe: wall = busy + head + gaps + drain, repeat by repeat.

The probe brackets each repeat, its closing synchronise included, with an annotation `kdaprof.repeat#<i>`. With
CUDA activity alone no annotation is recorded; then repeats are cut at device synchronises, or at host borders
handed in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.intervals import cover
from kdaprof.analysis.trace.apis import Api, base_name
from kdaprof.analysis.trace.busy import BusySpan, DeviceWork, Window, busy_of, device_rows
from kdaprof.analysis.trace.host_state import HostState
from kdaprof.analysis.trace.idle import NO_EVENT, Cause, Gaps, IdleSplit, classify, gaps_of
from kdaprof.analysis.trace.latency import LaunchLatency, launch_latency
from kdaprof.analysis.trace.launches import launch_count
from kdaprof.analysis.trace.links import Links, link
from kdaprof.errors import UsageError
from kdaprof.timeline.columns import Index, Kind, Timeline

REPEAT_ANNOTATION = "kdaprof.repeat#"
_REPEAT = re.compile(re.escape(REPEAT_ANNOTATION) + r"(\d+)$")
_DEVICE_SYNCS = frozenset({"cudaDeviceSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSplit:
    """The device side of one repeat. `head + gaps + drain_ns + busy_ns` is the wall time, to the nanosecond.

    `head`: from the start of the call to the first device event, classified like a gap · `gaps`: trace idle ·
    `drain_ns`: from the last device event to the return of the synchronise · `busy`: clipped to the repeat.
    """

    busy: BusySpan
    head: IdleSplit
    gaps: IdleSplit
    drain_ns: int
    drained_by_sync_ns: int
    latency: LaunchLatency | None

    @property
    def head_ns(self) -> int:
        """Call start to first device event."""
        return self.head.total_ns

    @property
    def idle(self) -> IdleSplit:
        """Head and gaps by class, without the drain."""
        return self.head + self.gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatSplit:
    """One profiled repeat. `device` is None when no device event was recorded in it (never taken as busy 0)."""

    index: int
    start_ns: int
    end_ns: int
    launches: Mapping[str, int]
    device: DeviceSplit | None

    @property
    def wall_ns(self) -> int:
        """Host border to host border, profiler included."""
        return self.end_ns - self.start_ns

    @property
    def launch_total(self) -> int:
        """Launch calls of all APIs."""
        return sum(self.launches.values())

    @property
    def idle_ns(self) -> int | None:
        """Probe idle: wall − busy = head + gaps + drain."""
        return None if self.device is None else self.wall_ns - self.device.busy.busy_ns


def repeat_windows(timeline: Timeline, *, links: Links | None = None) -> tuple[tuple[int, Window], ...]:
    """(index, window) of each repeat: by annotation, else between device synchronises that enclose launches."""
    numbers = {i: int(m.group(1)) for i, name in enumerate(timeline.names) if (m := _REPEAT.match(name))}
    if numbers:
        named = np.isin(timeline.name, list(numbers))
        rows = np.flatnonzero(named & timeline.of_kind(Kind.ANNOTATION, Kind.CPU_OP)).tolist()
        if rows:
            return tuple(
                sorted(
                    (numbers[int(timeline.name[row])], (int(timeline.start_ns[row]), int(timeline.end_ns[row])))
                    for row in rows
                )
            )
    return _between_syncs(timeline, links if links is not None else link(timeline))


def repeat_splits(
    timeline: Timeline, windows: Sequence[Window] | None = None, *, device: int | None = None
) -> tuple[RepeatSplit, ...]:
    """Split each profiled repeat.

    `windows`: host borders of the repeats on the timeline's clock, when the caller knows them better.
    `device`: which one, where several did work; `UsageError` if it is then left out.
    """
    links = link(timeline)
    host = HostState(timeline, links)
    devices = timeline.devices()
    if device is None and len(devices) > 1:
        raise UsageError(f"the timeline has devices {', '.join(map(str, devices))}: name one")
    chosen = device if device is not None else (devices[0] if devices else None)
    numbered = tuple(enumerate(windows)) if windows is not None else repeat_windows(timeline, links=links)
    return tuple(_split(timeline, links, host, index, window, chosen) for index, window in numbered)


def _split(
    timeline: Timeline, links: Links, host: HostState, index: int, window: Window, device: int | None
) -> RepeatSplit:
    rows = np.empty(0, dtype=np.intp)
    if device is not None:
        rows = device_rows(timeline, device, window=window, links=links)
        rows = rows[(timeline.end_ns[rows] > window[0]) & (timeline.start_ns[rows] < window[1])]
    return RepeatSplit(
        index=index,
        start_ns=window[0],
        end_ns=window[1],
        launches=launch_count(timeline, window, links=links),
        device=split_device(timeline, links, host, window, device, rows) if device is not None and rows.size else None,
    )


def split_device(
    timeline: Timeline, links: Links, host: HostState, window: Window, device: int, rows: Index
) -> DeviceSplit:
    """The device events of a repeat, clipped to its borders: the two clocks agree only to a microsecond."""
    start = np.clip(timeline.start_ns[rows], *window)
    end = np.clip(timeline.end_ns[rows], *window)
    work = DeviceWork(device, rows, cover(start, end))
    latency = launch_latency(timeline, links, work)
    gaps = gaps_of(timeline, links, host, work, latency)
    first, last = int(start.min()), int(end.max())
    head = _head(timeline, links, host, window[0], first, work, latency)
    span = busy_of(timeline, device, rows, start_ns=start, end_ns=end)
    assert span is not None  # rows are not empty
    return DeviceSplit(
        busy=span,
        head=head.split(),
        gaps=gaps.split(),
        drain_ns=window[1] - last,
        drained_by_sync_ns=gaps.caused_ns(Cause.DRAINED_BY_SYNC),
        latency=latency,
    )


def _head(
    timeline: Timeline,
    links: Links,
    host: HostState,
    begin_ns: int,
    first_ns: int,
    work: DeviceWork,
    latency: LaunchLatency | None,
) -> Gaps:
    one = 1 if first_ns > begin_ns else 0
    return classify(
        timeline,
        links,
        host,
        start_ns=np.full(one, begin_ns, dtype=np.int64),
        end_ns=np.full(one, first_ns, dtype=np.int64),
        previous=np.full(one, NO_EVENT, dtype=np.intp),
        following=work.ordered_rows[:one],
        latency=latency,
    )


def _between_syncs(timeline: Timeline, links: Links) -> tuple[tuple[int, Window], ...]:
    """Segments from the return of one device synchronise to the return of the next, if something was launched."""
    calls = links.calls[(links.api & Api.SYNC) != 0]
    wide = np.array([base_name(name) in _DEVICE_SYNCS for name in timeline.names], dtype=np.bool_)
    ends = np.sort(timeline.end_ns[calls[wide[timeline.name[calls]]]]) if calls.size else np.empty(0, np.int64)
    launches = timeline.start_ns[links.launches]
    windows: list[tuple[int, Window]] = []
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        if np.searchsorted(launches, end) > np.searchsorted(launches, begin):
            windows.append((len(windows), (begin, end)))
    return tuple(windows)
