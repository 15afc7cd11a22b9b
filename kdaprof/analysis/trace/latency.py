"""How long a launch takes to arrive at an empty device, measured in the trace itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.trace.apis import Api
from kdaprof.analysis.trace.busy import DeviceWork
from kdaprof.analysis.trace.links import Links
from kdaprof.timeline.columns import Timeline

LATENCY_MIN_SAMPLES = 5
"""Fewer launches into an empty device than this say nothing about its latency."""

LATENCY_SPREAD = 2
"""A launch is arriving up to this multiple of the median latency; what lasts longer is waiting. On V100, A100,
H100, H200 and MI300 traces the slowest ordinary arrival is 1.1 to 1.7 medians, a stream dependency 10 and more."""


@dataclass(frozen=True, slots=True)
class LaunchLatency:
    """From the return of a launch call to the start of its event, when the device had nothing to do.

    `median_ns` over `samples` launches; `bound_ns` is where waiting begins.
    """

    median_ns: int
    samples: int

    @property
    def bound_ns(self) -> int:
        """Up to here a launch is arriving."""
        return LATENCY_SPREAD * self.median_ns


def launch_latency(timeline: Timeline, links: Links, work: DeviceWork) -> LaunchLatency | None:
    """The latency of launches that began after the device had run dry; None with too few of them.

    Graph launches are left out: they are slower by their nodes. A start before the call returned counts as 0.
    """
    coverage = work.coverage
    at = np.flatnonzero(coverage.gap_ns > 0)
    call = links.call_of[work.ordered_rows[at]]
    empty = (call >= 0) & (timeline.start_ns[call] >= coverage.reach_ns[at])
    empty &= timeline.start_ns[call] < coverage.start_ns[at]
    empty &= (links.api_of_row[call] & Api.GRAPH_LAUNCH) == 0
    delays = np.maximum(coverage.start_ns[at][empty] - timeline.end_ns[call[empty]], 0)
    if delays.size < LATENCY_MIN_SAMPLES:
        return None
    return LaunchLatency(median_ns=int(np.median(delays)), samples=int(delays.size))
