"""The pause between rounds: when it comes, how long it is, and that it ends."""

from __future__ import annotations

from watch_parts import S

from kdaprof.instruments.cooldown import FIRST_PAUSE_NS, MOST_IN_ALL_NS, CoolDown
from kdaprof.instruments.fakes import FakeClock, FakeSensor

FULL = [1_980_000_000] * 5
LOW = [1_700_000_000] * 5


def test_a_steady_clock_costs_nothing() -> None:
    clock = FakeClock()
    cool = CoolDown(FakeSensor(), clock)
    assert [cool.after_round(FULL), cool.after_round([1_900_000_000] * 5), cool.after_round(FULL)] == [None] * 3
    assert clock.slept_ns == []


def test_a_clock_below_its_band_is_given_time_longer_each_round_and_never_more_than_allowed() -> None:
    clock = FakeClock()
    cool = CoolDown(FakeSensor(), clock)
    cool.after_round(FULL)
    spent = []
    for _ in range(12):
        before = clock.time_ns
        told = cool.after_round(LOW)
        assert told is not None
        spent.append(clock.time_ns - before)
    assert spent[:3] == [FIRST_PAUSE_NS, 2 * FIRST_PAUSE_NS, 4 * FIRST_PAUSE_NS]
    assert sum(spent) == MOST_IN_ALL_NS
    assert spent[-1] == 0
    assert "used up" in (cool.after_round(LOW) or "")


def test_a_good_round_starts_the_pauses_anew() -> None:
    clock = FakeClock()
    cool = CoolDown(FakeSensor(), clock)
    for clocks in (FULL, LOW, LOW, FULL, LOW):
        before = clock.time_ns
        cool.after_round(clocks)
    assert clock.time_ns - before == FIRST_PAUSE_NS


def test_a_limit_is_waited_for_until_it_lifts() -> None:
    sensor = FakeSensor()
    sensor.values["throttle_reasons"] = ("hw_thermal_slowdown",)

    class Cooling(FakeClock):
        def sleep_ns(self, duration_ns: int) -> None:
            super().sleep_ns(duration_ns)
            if len(self.slept_ns) == 4:
                sensor.values["throttle_reasons"] = ("gpu_idle",)

    clock = Cooling()
    cool = CoolDown(sensor, clock)
    told = [cool.after_round(FULL), cool.after_round(FULL)]
    assert "hw_thermal_slowdown: paused 0.5 s" in (told[0] or "")
    assert "paused 0.5 s" in (told[1] or "")  # of the 1 s that it might have taken
    assert cool.after_round(FULL) is None


def test_without_a_card_or_a_clock_there_is_nothing_to_wait_for() -> None:
    assert CoolDown(None, FakeClock()).after_round(LOW) is None
    assert CoolDown(FakeSensor(), FakeClock()).after_round([]) is None


def test_the_longest_single_pause_is_bounded() -> None:
    clock = FakeClock()
    cool = CoolDown(FakeSensor(), clock, most_ns=1000 * S)
    cool.after_round(FULL)
    for _ in range(10):
        before = clock.time_ns
        cool.after_round(LOW)
    assert clock.time_ns - before == 8 * S
