"""Phase by phase: annotations, nested, self and total, with the launches of all threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.trace.annotations import NO_RANGE, Ranges, common
from kdaprof.analysis.trace.context import Context, DeviceView
from kdaprof.analysis.trace.idle import NO_EVENT
from kdaprof.timeline.columns import Index, Int64, Kind

TINY_KERNELS_MIN = 100
"""From so many launches a call on, a range can be one of many tiny kernels (a graph replay is one launch)."""

TINY_KERNEL_NS = 10_000
"""A kernel shorter than its own launch (about 10 µs through eager PyTorch) is tiny."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """All ranges of one name under one parent. `self_` leaves out nested ranges, `total_` has them.

    A device event belongs to the innermost range it was launched in; a gap to the innermost range that holds
    the launches on both of its sides. So the `self_` figures of all rows and `outside` add up to the device's.
    `median_kernel_ns` is over all kernels launched in the range, None without any.
    """

    name: str
    parent: str | None
    calls: int
    self_host_ns: int
    total_host_ns: int
    self_launches: int
    total_launches: int
    self_device_events: int
    total_device_events: int
    self_busy_ns: int
    total_busy_ns: int
    self_idle_ns: int
    total_idle_ns: int
    median_kernel_ns: int | None

    @property
    def tiny_kernels(self) -> bool:
        """Whether each call issues many kernels that are shorter than their launches."""
        return (
            self.total_launches >= TINY_KERNELS_MIN * self.calls
            and self.median_kernel_ns is not None
            and self.median_kernel_ns <= TINY_KERNEL_NS
        )


@dataclass(frozen=True, slots=True)
class Outside:
    """What no annotation holds: the remainder of the device's time, and launches outside all ranges."""

    busy_ns: int
    idle_ns: int
    launches: int
    device_events: int


def phase_table(context: Context, view: DeviceView) -> tuple[tuple[PhaseRow, ...], Outside]:
    """All phases on one device, longest total device time first, and what is outside all."""
    ranges = context.ranges
    rows = view.work.ordered_rows
    event_range = context.range_of[rows].astype(np.intp)
    gap_range = _gap_ranges(context, view)
    launch_range = context.range_of[context.links.launches].astype(np.intp)
    n = len(ranges)
    own = {
        "busy": _summed(event_range, view.work.coverage.added_ns, n),
        "idle": _summed(gap_range, view.gaps.length_ns, n),
        "launches": _summed(launch_range, np.ones(launch_range.size, dtype=np.int64), n),
        "events": _summed(event_range, np.ones(event_range.size, dtype=np.int64), n),
    }
    outside = Outside(
        busy_ns=int(own["busy"][n]),
        idle_ns=int(own["idle"][n]),
        launches=int(own["launches"][n]),
        device_events=int(own["events"][n]),
    )
    total = {key: _with_nested(ranges, values[:n]) for key, values in own.items()}
    lengths = ranges.end_ns - ranges.start_ns
    own_host = lengths - _nested_host_ns(ranges, lengths)
    levels = _levels(ranges)
    table = []
    for (name, parent), members in _by_name(context).items():
        table.append(
            PhaseRow(
                name=context.timeline.names[name],
                parent=None if parent == NO_RANGE else context.timeline.names[parent],
                calls=int(members.size),
                self_host_ns=int(own_host[members].sum()),
                total_host_ns=int(lengths[members].sum()),
                self_launches=int(own["launches"][members].sum()),
                total_launches=int(total["launches"][members].sum()),
                self_device_events=int(own["events"][members].sum()),
                total_device_events=int(total["events"][members].sum()),
                self_busy_ns=int(own["busy"][members].sum()),
                total_busy_ns=int(total["busy"][members].sum()),
                self_idle_ns=int(own["idle"][members].sum()),
                total_idle_ns=int(total["idle"][members].sum()),
                median_kernel_ns=_median_kernel(context, rows, event_range, members, levels),
            )
        )
    table.sort(key=lambda row: (-(row.total_busy_ns + row.total_idle_ns), row.name))
    return tuple(table), outside


def _gap_ranges(context: Context, view: DeviceView) -> Index:
    gaps = view.gaps
    after = context.range_of[gaps.following].astype(np.intp)
    before = np.where(gaps.previous == NO_EVENT, NO_RANGE, context.range_of[gaps.previous]).astype(np.intp)
    return common(context.ranges, before, after)


def _summed(of: Index, values: Int64, n: int) -> Int64:
    """Exact sums of `values` by range [n + 1]; the last one is what is outside all ranges."""
    sums = np.zeros(n + 1, dtype=np.int64)
    np.add.at(sums, np.where(of == NO_RANGE, n, of), values)
    return sums


def _with_nested(ranges: Ranges, own: Int64) -> Int64:
    total = own.copy()
    for level in reversed(_levels(ranges)[1:]):
        np.add.at(total, ranges.parent[level], total[level])
    return total


def _levels(ranges: Ranges) -> list[Index]:
    """Ranges by depth, outermost first; only the first level has no parents."""
    if not len(ranges):
        return []
    order = np.argsort(ranges.depth, kind="stable")
    borders = np.searchsorted(ranges.depth[order], np.arange(int(ranges.depth.max()) + 2))
    return [order[begin:end] for begin, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)]


def _nested_host_ns(ranges: Ranges, lengths: Int64) -> Int64:
    """Host time of directly nested ranges of the same thread."""
    nested = np.zeros(len(ranges), dtype=np.int64)
    child = np.flatnonzero(ranges.parent != NO_RANGE)
    child = child[ranges.thread[child] == ranges.thread[ranges.parent[child]]]
    np.add.at(nested, ranges.parent[child], lengths[child])
    return nested


def _by_name(context: Context) -> dict[tuple[int, int], Index]:
    """Ranges by (name, name of the parent); a range directly inside one of its own name is part of that one."""
    ranges = context.ranges
    above = np.where(ranges.parent == NO_RANGE, NO_RANGE, ranges.name[ranges.parent]) if len(ranges) else ranges.name
    found: dict[tuple[int, int], list[int]] = {}
    for index, (name, parent) in enumerate(zip(ranges.name.tolist(), above.tolist(), strict=True)):
        if name != parent:
            found.setdefault((name, parent), []).append(index)
    return {key: np.array(members, dtype=np.intp) for key, members in found.items()}


def _median_kernel(
    context: Context, rows: Index, event_range: Index, members: Index, levels: list[Index]
) -> int | None:
    """Median duration of the kernels launched in these ranges or in ranges nested in them."""
    ranges = context.ranges
    inside = np.zeros(len(ranges) + 1, dtype=np.bool_)
    inside[members] = True
    for level in levels[1:]:
        inside[level] |= inside[ranges.parent[level]]
    chosen = rows[inside[event_range]]
    chosen = chosen[context.timeline.kind[chosen] == Kind.KERNEL]
    if not chosen.size:
        return None
    return int(np.median(context.timeline.end_ns[chosen] - context.timeline.start_ns[chosen]))
