from __future__ import annotations

import pytest

from kdaprof.errors import UsageError
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.fakes import FakeClock, FakeSensor
from kdaprof.instruments.gpm import GpmActivity
from kdaprof.instruments.gpu_util import Sampler
from kdaprof.instruments.reading import Missing, Reading
from kdaprof.instruments.sensor import Utilisation
from kdaprof.instruments.watch.extras import GPM_PERIOD_NS, GPM_STARTS, GpmRows
from kdaprof.instruments.watch.pace import Pace
from kdaprof.instruments.watch.schedule import due_ns, next_due, samples_due
from kdaprof.instruments.watch.taker import SampleTaker

MS = 1_000_000


def util_rows(taker: SampleTaker, times_ms: list[int]) -> list[tuple[float | None, bool]]:
    rows = [row for t in times_ms for row in taker.take(t * MS)[0]]
    return [(row.value, row.stale) for row in rows if row.field == "util"]


def test_due_times_do_not_drift() -> None:
    # 3 Hz has no whole period in ns: adding the period up would be 1 ns off after each sample.
    assert due_ns(7, 3, 3) == 7 + 1_000_000_000
    assert due_ns(0, 3_000_000, 3) == 1_000_000 * 1_000_000_000
    assert samples_due(0, 10 * MS, 100) == 2
    assert samples_due(0, 9 * MS, 100) == 1


def test_a_hiccup_is_made_up_for_and_a_stall_is_not() -> None:
    assert next_due(0, 4 * MS, 100, after=0) == 1
    # The thread did not run for 95 ms: number 1 is taken late, and says so.
    assert next_due(0, 95 * MS, 100, after=0) == 1
    # The driver did not answer for 1 s: what is late by more than 250 ms is left out.
    assert next_due(0, 1000 * MS, 100, after=0) == 76
    # At 2 Hz a period is longer than that.
    assert next_due(0, 1700 * MS, 2, after=0) == 3


def test_a_repeat_within_nvmls_window_is_stale_and_a_steady_value_is_not_for_ever() -> None:
    sensor = FakeSensor(utilisations=[Utilisation(0.5, 0.1)])
    assert util_rows(SampleTaker(sensor), [0, 10, 160, 170, 180]) == [
        (0.5, False),
        (0.5, True),
        (0.5, True),
        (0.5, False),
        (0.5, True),
    ]


def test_a_new_value_is_fresh_at_any_rate_and_slow_sampling_never_stale() -> None:
    changing = FakeSensor(utilisations=[Utilisation(0.1, 0), Utilisation(0.2, 0), Utilisation(0.1, 0)])
    assert [stale for _, stale in util_rows(SampleTaker(changing), [0, 10, 20])] == [False] * 3
    steady = FakeSensor(utilisations=[Utilisation(0.4, 0)])
    assert [stale for _, stale in util_rows(SampleTaker(steady), [0, 500, 1000])] == [False] * 3


def test_zero_is_a_value_and_not_supported_is_not_zero() -> None:
    sensor = FakeSensor(utilisations=[Utilisation(0.0, 0.0)])
    sensor.fail("not-supported", "no power sensor", "power_w")
    rows = {row.field: row for row in SampleTaker(sensor).take(0)[0]}
    assert (rows["util"].value, rows["util"].missing) == (0.0, None)
    assert (rows["power_w"].value, rows["power_w"].missing) == (None, "no power sensor")
    assert rows["sm_clock_hz"].value == 1.98e9
    assert {row.uuid for row in rows.values()} == {sensor.uuid}


class Gpm:
    def __init__(self) -> None:
        self.reads = 0

    def read(self) -> Reading[GpmActivity]:
        self.reads += 1
        return Reading(GpmActivity(graphics=0.2, sm=0.1, occupancy=None, dram=0.05))


def test_gpm_is_read_as_often_as_its_pace_says() -> None:
    gpm, sensor = Gpm(), FakeSensor()
    taker = SampleTaker(sensor, [GpmRows(sensor, gpm, Pace(None, period_ns=GPM_PERIOD_NS))])
    rows = [row for t in range(0, 300, 10) for row in taker.take(t * MS)[0]]
    assert gpm.reads == 3
    # The first reading covers what was before the series: it only says where the second begins.
    graphics = [(row.t_ns, row.value, row.missing) for row in rows if row.field == "gpm_graphics"]
    assert graphics == [(0, None, GPM_STARTS), (100 * MS, 0.2, None), (200 * MS, 0.2, None)]
    by_field = {row.field: row for row in rows}
    assert by_field["gpm_graphics"].value == 0.2
    assert by_field["gpm_occupancy"].value is None
    assert by_field["gpm_occupancy"].missing
    # At the end the rest, if there is enough of it.
    assert [taker.last(t * MS) == [] for t in (299, 300)] == [True, False]


@pytest.mark.parametrize("hz", [0, -1, 100.5, float("nan")])
def test_rates_that_make_no_sense_are_refused(hz: float) -> None:
    with pytest.raises(UsageError, match="sampling rate"):
        Sampler(FakeSensor(), FakeClock(), hz)


def test_real_thread_keeps_its_rate_and_says_what_it_cost() -> None:
    clock = MonotonicClock()
    sampler = Sampler(FakeSensor(utilisations=[Utilisation(0.3, 0.1)]), clock, 50).start()
    clock.sleep_ns(210 * MS)
    series = sampler.stop()
    assert 10 <= series.due <= 60
    assert 1 <= series.taken <= series.due
    assert len(series.lateness_ns) == series.taken
    assert all(late >= 0 for late in series.lateness_ns)
    assert 0 < series.own_cpu_ns < series.end_ns - series.start_ns
    assert series.stopped is None
    fresh = series.values("util")
    assert set(fresh) == {0.3}
    assert len(fresh) < len(series.values("util", fresh_only=False))
    assert sampler.stop() is series


def test_a_lost_card_ends_its_series_with_the_reason_and_the_samples_before_it_stay() -> None:
    sensor = FakeSensor(utilisations=[Utilisation(0.9, 0.5), Missing("gpu-lost", "GPU is lost")])
    clock = MonotonicClock()
    with Sampler(sensor, clock, 100) as sampler:
        clock.sleep_ns(60 * MS)
    series = sampler.series
    assert series.stopped is not None
    assert series.stopped.reason == "GPU is lost"
    assert series.values("util") == (0.9,)
    assert series.end_ns == series.stopped.t_ns


def test_a_sensor_that_raises_ends_its_series_and_not_the_run() -> None:
    class Broken(FakeSensor):
        def memory(self) -> Reading[object]:  # type: ignore[override]
            raise RuntimeError("driver hiccup")

    with Sampler(Broken(), MonotonicClock(), 10) as sampler:
        pass
    # The thread may be stopped before its first sample; then there is nothing to report.
    stopped = sampler.series.stopped
    assert stopped is None or "driver hiccup" in stopped.reason
