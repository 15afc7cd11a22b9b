"""The stops that py-spy made for native stacks, as clocks that run during stops only.

py-spy stamps a stack when it has unwound it, so that each deep stack lends the time of its unwinding to the one before:
to a sleep more often than not. And the kernel's counters count a stop as waiting. So the counters are read on a clock
without stops, and a stop goes to waiting only where the thread was asleep when it was stopped.
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


@dataclass(frozen=True, slots=True)
class Stops:
    """All stops, and those that found the main thread asleep."""

    all: StopClock
    asleep: StopClock


def stops_of(holds: Holds, span_ns: int) -> Stops | None:
    """The clocks of a recording that lasted `span_ns`; None when its stops were looked for too seldom."""
    if holds.looks * COARSEST_NS < span_ns:
        return None
    asleep = holds.asleep
    return Stops(_clock(holds.start_ns, holds.end_ns), _clock(holds.start_ns[asleep], holds.end_ns[asleep]))


def _clock(start_ns: IntArray, end_ns: IntArray) -> StopClock:
    after = np.cumsum(end_ns - start_ns)
    before = after - (end_ns - start_ns)
    return StopClock(np.stack([start_ns, end_ns], axis=1).reshape(-1), np.stack([before, after], axis=1).reshape(-1))


_NONE = StopClock(np.zeros(0, np.int64), np.zeros(0, np.int64))
NO_STOPS = Stops(_NONE, _NONE)
"""Python stacks stop nothing."""
