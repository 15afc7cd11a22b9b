from __future__ import annotations

import time

from kdaprof.instruments.clock import ClockPair, MonotonicClock, clock_pair, resolution_ns
from kdaprof.instruments.fakes import FakeClock


class Coarse:
    """A clock that moves by 1 ms every 300 readings, as a coarse system clock does."""

    def __init__(self) -> None:
        self.readings = 0

    def now_ns(self) -> int:
        self.readings += 1
        return self.readings // 300 * 1_000_000

    def unix_ns(self) -> int:
        return 0

    def sleep_ns(self, duration_ns: int) -> None: ...


def test_real_clock_is_integer_monotonic_and_shares_its_base_with_perf_counter() -> None:
    clock = MonotonicClock()
    before, now, after = time.perf_counter_ns(), clock.now_ns(), time.perf_counter_ns()
    assert isinstance(now, int)
    # On Linux both are CLOCK_MONOTONIC; NVTX tools and py-spy stamp with it.
    assert before <= now <= after


def test_sleep_waits_at_least_as_long_and_ignores_the_past() -> None:
    clock = MonotonicClock()
    start = clock.now_ns()
    clock.sleep_ns(2_000_000)
    assert clock.now_ns() - start >= 2_000_000
    clock.sleep_ns(-5)


def test_real_resolution_is_small_and_positive() -> None:
    assert 1 <= resolution_ns(MonotonicClock()) < 100_000


def test_resolution_of_a_coarse_clock_is_its_step_and_of_a_stopped_one_a_second() -> None:
    assert resolution_ns(Coarse(), readings=50) == 1_000_000
    assert resolution_ns(FakeClock(), readings=3) == 1_000_000_000
    assert resolution_ns(FakeClock(tick_ns=40)) == 40


def test_pair_takes_the_tightest_sandwich() -> None:
    class Preempted(FakeClock):
        def unix_ns(self) -> int:
            # Every try but the third is interrupted for 1 ms between its two monotonic readings.
            self.tries = getattr(self, "tries", 0) + 1
            if self.tries != 3:
                self.advance(1_000_000)
            return super().unix_ns()

    pair = clock_pair(Preempted(tick_ns=10))
    assert pair.uncertainty_ns == 5
    assert abs(pair.unix_ns - pair.monotonic_ns - 10**18) <= 5


def test_pair_maps_both_ways() -> None:
    pair = ClockPair(monotonic_ns=100, unix_ns=5_000, uncertainty_ns=1)
    assert pair.to_unix_ns(250) == 5_150
    assert pair.to_monotonic_ns(pair.to_unix_ns(77)) == 77


def test_real_pair_agrees_with_both_clocks() -> None:
    pair = clock_pair(MonotonicClock())
    assert abs(pair.to_unix_ns(time.monotonic_ns()) - time.time_ns()) < 50_000_000
