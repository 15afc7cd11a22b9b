"""When samples are due: number k at t0 + k / hz, so that lateness does not add up."""

from __future__ import annotations

from kdaprof.errors import UsageError

MAX_HZ = 100.0
CATCH_UP_NS = 250_000_000


def checked_hz(hz: float) -> float:
    """The rate itself; UsageError when it is not in (0, 100]."""
    if not 0 < hz <= MAX_HZ:
        raise UsageError(f"the sampling rate is {hz} Hz; it must be above 0 and at most {MAX_HZ:.0f} Hz")
    return hz


def due_ns(start_ns: int, k: int, hz: float) -> int:
    """Monotonic time at which sample k is due."""
    return start_ns + round(k * 1e9 / hz)


def next_due(start_ns: int, now_ns: int, hz: float, *, after: int) -> int:
    """The first sample later than number `after` that is late by no more than a period or `CATCH_UP_NS`.

    A thread that was not scheduled for some milliseconds makes up for the samples it missed, each with its lateness;
    after a longer stall those due are left out, for a burst of readings of the same moment says nothing.
    """
    period = 1e9 / hz
    behind = now_ns - start_ns - max(0.0, CATCH_UP_NS - period)
    return max(after + 1, int(behind / period))


def samples_due(start_ns: int, end_ns: int, hz: float) -> int:
    """How many samples were due in [start, end], sample 0 included."""
    return 1 + int((end_ns - start_ns) * hz / 1e9)
