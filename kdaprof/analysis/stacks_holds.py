"""The stops that py-spy made for native stacks, as a clock that runs during stops only.

py-spy stamps a stack when it has unwound it, so that each deep stack lends the time of its unwinding to the one before:
to a sleep more often than not. And the kernel's counters count a stop as waiting. So all is read on a clock without
stops. They are nobody's: one in which py-spy reads symbols lasts for a second, and would make a sleep or an operation
of whatever it happened to stop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdaprof.runs.stacks import Holds
from kdaprof.runs.util_file import FloatArray, IntArray

COARSEST_NS = 4_000_000
"""Looks further apart than this, on average, see too little of the stops: then they are not used."""


@dataclass(frozen=True, slots=True)
class StopClock:
    """Time stopped until any time: `knots` are the starts and ends of stops, `stopped_ns` the sum until each."""

    knots: IntArray
    stopped_ns: IntArray

    def until(self, t_ns: IntArray) -> FloatArray:
        """Time stopped (ns) until each of `t_ns`."""
        if not len(self.knots):
            return np.zeros(len(t_ns))
        found: FloatArray = np.interp(t_ns, self.knots, self.stopped_ns)
        return found


def stops_of(holds: Holds, span_ns: int) -> StopClock | None:
    """The clock of a recording that lasted `span_ns`; None when its stops were looked for too seldom."""
    if holds.looks * COARSEST_NS < span_ns:
        return None
    after = np.cumsum(holds.end_ns - holds.start_ns)
    before = after - (holds.end_ns - holds.start_ns)
    knots = np.stack([holds.start_ns, holds.end_ns], axis=1).reshape(-1)
    return StopClock(knots, np.stack([before, after], axis=1).reshape(-1))


NO_STOPS = StopClock(np.zeros(0, np.int64), np.zeros(0, np.int64))
"""Python stacks stop nothing."""
