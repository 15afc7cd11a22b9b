"""The host clock: integer nanoseconds of CLOCK_MONOTONIC, and what joins it with unix time.

`time.monotonic_ns` and `time.perf_counter_ns` read the same clock on Linux, and so do NVTX tools, py-spy and NVML
readers that kdaprof times itself. A trace of Kineto is in unix time: a `ClockPair` maps between the two.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """A source of time. Both readings are integer nanoseconds."""

    def now_ns(self) -> int:
        """Monotonic time; only differences and a `ClockPair` give it meaning."""
        ...

    def unix_ns(self) -> int:
        """Time since 1970-01-01T00:00:00Z."""
        ...

    def sleep_ns(self, duration_ns: int) -> None:
        """Wait at least `duration_ns`; nothing happens for a duration ≤ 0."""
        ...


class MonotonicClock:
    """The machine's clock. Its readers are C functions bound to the object: no Python frame a reading."""

    def __init__(self) -> None:
        self.now_ns = time.monotonic_ns
        self.unix_ns = time.time_ns

    def sleep_ns(self, duration_ns: int) -> None:
        """Wait at least `duration_ns`; nothing happens for a duration ≤ 0."""
        if duration_ns > 0:
            time.sleep(duration_ns / 1e9)


@dataclass(frozen=True, slots=True)
class ClockPair:
    """The same moment in monotonic and in unix time, known to within `uncertainty_ns`."""

    monotonic_ns: int
    unix_ns: int
    uncertainty_ns: int

    def to_unix_ns(self, monotonic_ns: int) -> int:
        """Unix time of a monotonic reading. Exact near the pair; unix time may be slewed by up to 500 ppm."""
        return monotonic_ns + (self.unix_ns - self.monotonic_ns)

    def to_monotonic_ns(self, unix_ns: int) -> int:
        """Monotonic time of a unix reading."""
        return unix_ns - (self.unix_ns - self.monotonic_ns)


def clock_pair(clock: Clock, tries: int = 5) -> ClockPair:
    """The tightest of `tries` sandwiches monotonic–unix–monotonic: a preempted try loses to a clean one."""
    best: ClockPair | None = None
    for _ in range(max(1, tries)):
        before = clock.now_ns()
        unix = clock.unix_ns()
        after = clock.now_ns()
        pair = ClockPair(before + (after - before) // 2, unix, (after - before + 1) // 2)
        if best is None or pair.uncertainty_ns < best.uncertainty_ns:
            best = pair
    assert best is not None
    return best


def resolution_ns(clock: Clock, readings: int = 2000) -> int:
    """The smallest step the clock was seen to make between two neighbouring readings, in ns, at least 1.

    Measured, not asked of the system: `clock_getres` says 1 ns where a reading takes 30. A coarse clock is read on
    until it moves, at most 1,000 × `readings` times; one that never moves resolves nothing: 1 s.
    """
    smallest: int | None = None
    tries = 0
    while tries < readings or (smallest is None and tries < 1000 * readings):
        tries += 1
        # Two readings with nothing between them but the calls themselves.
        first = clock.now_ns()
        second = clock.now_ns()
        if second > first and (smallest is None or second - first < smallest):
            smallest = second - first
    return 1_000_000_000 if smallest is None else smallest
