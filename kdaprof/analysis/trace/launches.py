"""Launch calls by API, and device events by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.trace.apis import base_name
from kdaprof.analysis.trace.busy import Window, busy_of, device_rows, device_work
from kdaprof.analysis.trace.links import Links, link
from kdaprof.timeline.columns import Index, Kind, Timeline


@dataclass(frozen=True, slots=True)
class KernelRow:
    """The device events of one name.

    `busy_ns`: what they add to the device's busy time (each instant belongs to the event that began first, so
    the rows add up to device busy) · `device_ns`: the sum of their durations · `median_ns`: of one event.
    """

    name: str
    kind: Kind
    calls: int
    busy_ns: int
    device_ns: int
    median_ns: int


def launch_rows(timeline: Timeline, window: Window | None = None, *, links: Links | None = None) -> Index:
    """Rows of the launch calls that began in the window, by start."""
    rows = (links if links is not None else link(timeline)).launches
    if window is None:
        return rows
    start = timeline.start_ns[rows]
    return rows[(start >= window[0]) & (start < window[1])]


def launch_count(timeline: Timeline, window: Window | None = None, *, links: Links | None = None) -> Mapping[str, int]:
    """Launch calls by API (`cudaLaunchKernel`: 287, …), most frequent first; the sum is the launch count.

    A graph launch is one call, however many kernels it holds.
    """
    rows = launch_rows(timeline, window, links=links)
    names, counts = np.unique(timeline.name[rows], return_counts=True)
    found: Counter[str] = Counter()
    for name, count in zip(names.tolist(), counts.tolist(), strict=True):
        found[base_name(timeline.names[name])] += count
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def kernel_table(
    timeline: Timeline, window: Window | None = None, *, device: int | None = None, links: Links | None = None
) -> tuple[KernelRow, ...]:
    """Kernels, copies and sets launched in the window, by name, longest busy first; all devices or one."""
    rows: list[KernelRow] = []
    joined = links if links is not None or window is None else link(timeline)
    for index in timeline.devices() if device is None else (device,):
        rows += kernel_rows(timeline, index, device_rows(timeline, index, window=window, links=joined))
    if device is not None or len(timeline.devices()) <= 1:
        return tuple(rows)
    return _merged(rows)


def kernel_rows(timeline: Timeline, device: int, rows: Index) -> tuple[KernelRow, ...]:
    """The table of these device events."""
    if busy_of(timeline, device, rows) is None:
        return ()
    work = device_work(timeline, device, rows)
    ordered = work.ordered_rows
    lengths = work.coverage.end_ns - work.coverage.start_ns
    order = np.lexsort((lengths, timeline.kind[ordered], timeline.name[ordered]))
    names, kinds = timeline.name[ordered][order], timeline.kind[ordered][order]
    lengths, added = lengths[order], work.coverage.added_ns[order]
    borders = np.flatnonzero((np.diff(names) != 0) | (np.diff(kinds) != 0)) + 1
    starts = np.concatenate((np.zeros(1, dtype=np.intp), borders))
    ends = np.concatenate((borders, np.array([names.size])))
    table = [
        KernelRow(
            name=timeline.names[int(names[begin])],
            kind=Kind(int(kinds[begin])),
            calls=int(end - begin),
            busy_ns=int(added[begin:end].sum()),
            device_ns=int(lengths[begin:end].sum()),
            median_ns=int(lengths[(begin + end) // 2]),
        )
        for begin, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return tuple(sorted(table, key=lambda row: (-row.busy_ns, row.name)))


def _merged(rows: list[KernelRow]) -> tuple[KernelRow, ...]:
    """One row a name over several devices; the median is that of the device with most calls."""
    merged: dict[tuple[str, Kind], KernelRow] = {}
    for row in rows:
        other = merged.get((row.name, row.kind))
        if other is None:
            merged[row.name, row.kind] = row
            continue
        merged[row.name, row.kind] = KernelRow(
            name=row.name,
            kind=row.kind,
            calls=row.calls + other.calls,
            busy_ns=row.busy_ns + other.busy_ns,
            device_ns=row.device_ns + other.device_ns,
            median_ns=row.median_ns if row.calls > other.calls else other.median_ns,
        )
    return tuple(sorted(merged.values(), key=lambda row: (-row.busy_ns, row.name)))
