"""Where the idle goes: every gap of a device, cut at the launch call of the event that ends it.

Classes are those of MEASURING ("Where the idle goes"); they add up to the idle exactly. Beside its classes each
gap has one cause: drained by a synchronise, starved (host late) or queued (launched in time).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from kdaprof.analysis.trace.apis import Api
from kdaprof.analysis.trace.busy import DeviceWork
from kdaprof.analysis.trace.host_state import HostState
from kdaprof.analysis.trace.latency import LaunchLatency
from kdaprof.analysis.trace.links import Links
from kdaprof.timeline.columns import Bool, Index, Int64, Timeline

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_EVENT = -1


class Cause(IntEnum):
    """Why a gap arose, whatever the host did in it."""

    DRAINED_BY_SYNC = 1
    STARVED = 2
    QUEUED = 3
    UNKNOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSplit:
    """Idle nanoseconds by class; `total_ns` is their sum."""

    sync: int = 0
    allocator: int = 0
    jit: int = 0
    dispatch: int = 0
    host_other: int = 0
    launch_call: int = 0
    launch_latency: int = 0
    device_wait: int = 0
    graph_gap: int = 0
    no_launch_record: int = 0
    unclassified: int = 0

    @property
    def total_ns(self) -> int:
        """All idle."""
        return sum(self.by_class().values())

    def by_class(self) -> Mapping[str, int]:
        """Nanoseconds by the name of the class, in the order of the contract."""
        return {name: getattr(self, name) for name in CLASSES}

    def largest(self) -> str | None:
        """The class with most idle, None when there is no idle."""
        name, value = max(self.by_class().items(), key=lambda item: item[1])
        return name if value else None

    def __add__(self, other: IdleSplit) -> IdleSplit:
        """The sum, class by class."""
        return IdleSplit(**{name: getattr(self, name) + getattr(other, name) for name in CLASSES})


CLASSES = tuple(field.name for field in fields(IdleSplit))


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps of one device as columns [m]: borders, the device events around them, classes, cause.

    `classes` [11, m] int64 nanoseconds in the order of `CLASSES`; `previous` is `NO_EVENT` for a head.
    """

    start_ns: Int64
    end_ns: Int64
    previous: Index
    following: Index
    classes: Int64
    cause: Int64

    @property
    def length_ns(self) -> Int64:
        """Length of each gap."""
        return self.end_ns - self.start_ns

    def split(self, which: Bool | Index | None = None) -> IdleSplit:
        """Idle by class, of all gaps or of some."""
        chosen = self.classes if which is None else self.classes[:, which]
        return IdleSplit(**dict(zip(CLASSES, chosen.sum(axis=1).tolist(), strict=True)))

    def caused_ns(self, cause: Cause, which: Bool | Index | None = None) -> int:
        """Nanoseconds of gaps of one cause, of all gaps or of some."""
        lengths = np.where(self.cause == cause, self.length_ns, 0)
        return int((lengths if which is None else lengths[which]).sum())


def gaps_of(timeline: Timeline, links: Links, host: HostState, work: DeviceWork, latency: LaunchLatency | None) -> Gaps:
    """All gaps between the events of one device, classified."""
    coverage = work.coverage
    at = np.flatnonzero(coverage.gap_ns > 0)
    rows = work.ordered_rows
    return classify(
        timeline,
        links,
        host,
        start_ns=coverage.reach_ns[at],
        end_ns=coverage.start_ns[at],
        previous=rows[coverage.before[at]],
        following=rows[at],
        latency=latency,
    )


def classify(
    timeline: Timeline,
    links: Links,
    host: HostState,
    *,
    start_ns: Int64,
    end_ns: Int64,
    previous: Index,
    following: Index,
    latency: LaunchLatency | None,
) -> Gaps:
    """Classify gaps [m] that end with the device events `following`.

    `latency` is how long a launch takes to arrive at an empty device; None when the trace cannot tell.
    """
    classes = np.zeros((len(CLASSES), start_ns.size), dtype=np.int64)
    row = {name: classes[index] for index, name in enumerate(CLASSES)}
    call = links.call_of[following]
    linked = call >= 0
    call_start = np.where(linked, timeline.start_ns[call], start_ns)
    call_end = np.where(linked, timeline.end_ns[call], start_ns)
    length = end_ns - start_ns

    row["no_launch_record"][:] = np.where(linked, 0, length)
    skewed = linked & (call_start >= end_ns)  # launched after it began: the clocks disagree, so nothing is known
    row["unclassified"][:] = np.where(skewed, length, 0)
    usual = linked & ~skewed

    until = np.where(usual, np.clip(call_start, start_ns, end_ns), start_ns)
    threads = np.where(linked, timeline.thread[call], -1)
    synchronised = np.zeros(start_ns.size, dtype=np.bool_)
    since = _launched_ns(timeline, links, previous, start_ns)
    for thread in np.unique(threads[usual]).tolist():
        mine = np.flatnonzero(usual & (threads == thread))
        spent = host.spent(thread, start_ns[mine], until[mine])
        for name in ("sync", "allocator", "jit", "dispatch", "host_other"):
            row[name][mine] = getattr(spent, name)
        synchronised[mine] = host.synchronised(thread, since[mine], call_start[mine])

    returned = np.where(usual, np.clip(call_end, start_ns, end_ns), end_ns)
    row["launch_call"][:] = np.where(usual, returned - until, 0)
    after = np.where(usual, end_ns - returned, 0)
    in_graph = usual & _within_graph(links, previous, following)
    row["graph_gap"][:] = np.where(in_graph, after, 0)
    arriving = np.where(in_graph, 0, _arriving_ns(latency, call_start, call_end, start_ns, returned, end_ns))
    row["launch_latency"][:] = np.where(usual, np.minimum(arriving, after), 0)
    row["device_wait"][:] = np.where(in_graph, 0, after - row["launch_latency"])

    cause = np.where(usual, np.where(call_start >= start_ns, Cause.STARVED, Cause.QUEUED), Cause.UNKNOWN)
    cause = np.where(synchronised & (previous != NO_EVENT), Cause.DRAINED_BY_SYNC, cause)
    return Gaps(start_ns, end_ns, previous, following, classes, cause.astype(np.int64))


def _launched_ns(timeline: Timeline, links: Links, events: Index, otherwise_ns: Int64) -> Int64:
    """When each event was launched: by its call, by its own start without one; no event: `otherwise_ns`."""
    real = events != NO_EVENT
    call = np.where(real, links.call_of[events], -1)
    own = np.where(real, timeline.start_ns[events], otherwise_ns)
    return np.where(call >= 0, timeline.start_ns[call], own)


def _within_graph(links: Links, previous: Index, following: Index) -> Bool:
    """Whether the events on both sides of the gap came of one graph launch."""
    call = links.call_of[following]
    graph = (links.api_of_row[call] & Api.GRAPH_LAUNCH) != 0
    same = (previous != NO_EVENT) & (links.call_of[previous] == call)
    found: Bool = (call >= 0) & graph & same
    return found


def _arriving_ns(
    latency: LaunchLatency | None,
    call_start: Int64,
    call_end: Int64,
    start_ns: Int64,
    returned: Int64,
    end_ns: Int64,
) -> Int64:
    """How much of the gap after the call's return a launch normally needs to arrive at an empty device."""
    if latency is None:  # nothing to compare with: late launches were arriving, early ones were waiting
        return np.where(call_start >= start_ns, end_ns - returned, 0)
    arriving: Int64 = np.maximum(call_end + latency.bound_ns - returned, 0)
    return arriving
