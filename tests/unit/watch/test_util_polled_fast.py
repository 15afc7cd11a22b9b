"""Polled faster than the driver renews its value: what repeats is no observation, but it is time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from watch_parts import Kept, S, series, waiter

from kdaprof.analysis.util import card_use
from kdaprof.analysis.util_join import join
from kdaprof.instruments.fakes import FakeClock
from kdaprof.instruments.fakes.nvml import FakeCard, FakePynvml
from kdaprof.instruments.nvml import open_nvml
from kdaprof.instruments.watch.loop import SampleLoop
from kdaprof.instruments.watch.taker import SampleTaker
from kdaprof.runs.util import write_util
from kdaprof.runs.util_file import FieldSeries, UtilFile


class Renewing(FakePynvml):
    """A driver whose utilisation is a new one `renewed_hz` times a second: those of `percents`, one after the other."""

    def __init__(self, clock: FakeClock, percents: Sequence[int], renewed_hz: float) -> None:
        super().__init__([FakeCard("GPU-a", "00000000:01:00.0")])
        self._clock, self._began_ns, self._percents, self._renewed_hz = clock, clock.time_ns, percents, renewed_hz

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        place = int((self._clock.time_ns - self._began_ns) * self._renewed_hz / S)
        percent = self._percents[min(place, len(self._percents) - 1)]
        return SimpleNamespace(gpu=percent, memory=percent)


def polled(folder: Path, percents: Sequence[int], *, renewed_hz: float, hz: float) -> dict[str, FieldSeries]:
    """What a watch at `hz` stores of it."""
    clock, kept = FakeClock(), Kept()
    nvml = open_nvml(lambda: Renewing(clock, percents, renewed_hz)).value
    assert nvml is not None
    device = nvml.devices()[0].value
    assert device is not None
    end_ns = clock.time_ns + round(len(percents) / renewed_hz * S) - 1
    SampleLoop([SampleTaker(device)], clock, hz, kept, wait=waiter(clock, end_ns)).run()
    write_util(folder / "gpu_util.parquet", kept.rows)
    file = UtilFile(folder / "gpu_util.parquet")
    return {field: file.series(field)["GPU-a"] for field in ("util", "mem_util")}


def busy_then_idle(renewed_hz: float) -> list[int]:
    """30 s of values that are never idle and never the same twice in a row, then 30 s of nothing."""
    rng, busy = random.Random(7), [50]
    while len(busy) < 30 * renewed_hz:
        percent = rng.randrange(20, 100)
        busy += [percent] if percent != busy[-1] else []
    return busy + [0] * len(busy)


@pytest.mark.parametrize("renewed_hz", [6.0, 10.0, 2.5])
@pytest.mark.parametrize("hz", [100.0, 30.0, 12.0])
def test_the_figures_are_those_of_time_and_not_of_how_often_a_value_was_seen(
    tmp_path: Path, renewed_hz: float, hz: float
) -> None:
    percents = busy_then_idle(renewed_hz)
    truth = np.array(percents) / 100
    use = card_use(polled(tmp_path, percents, renewed_hz=renewed_hz, hz=hz), names={})
    mean, idle = use.facts["util_mean"], use.facts["util_idle_share"]
    close = 0.003 if hz == 100 else 0.01  # a window is seen as many whole periods long as it has looks
    assert mean.value == pytest.approx(truth.mean(), abs=close)
    assert use.facts["mem_util"].value == pytest.approx(truth.mean(), abs=close)
    assert idle.value == pytest.approx(0.5, abs=close)
    assert use.facts["longest_idle_s"].value == pytest.approx(30, abs=2 / hz)
    for name in ("p25", "p75", "p90"):
        assert use.percentiles[name] == pytest.approx(np.quantile(truth, int(name[1:]) / 100), abs=0.03), name
    assert (mean.p10, mean.p90) == (use.percentiles["p10"], use.percentiles["p90"])
    assert mean.n == idle.n
    assert mean.n <= 60 * max(renewed_hz, 7.5) + 1  # repeats are no observations
    assert use.histogram is not None
    assert sum(use.histogram.counts) == mean.n
    assert use.histogram.counts[0] / mean.n == pytest.approx(idle.value, abs=0.003)


def test_a_median_of_mostly_idle_time_is_idle(tmp_path: Path) -> None:
    # Busy 40 % of the time: of the fresh readings it has more than half.
    percents = [30 + k % 2 for k in range(120)] + [0] * 180
    fields = polled(tmp_path, percents, renewed_hz=10, hz=100)
    assert (fields["util"].fresh()[1] > 0).mean() > 0.5
    use = card_use(fields, names={})
    assert use.facts["util_p50"].value == 0.0
    detail = use.facts["util_idle_share"].detail or ""
    assert detail.endswith("readings at ≤ 5 %, by the time that each stands for")


def test_a_long_idle_stretch_is_whole_where_the_values_around_it_change_at_every_look(tmp_path: Path) -> None:
    # A driver that renews at 50 Hz: idle readings, fresh every 170 ms, lie further apart than usual, and are no gap.
    percents = [30 + k % 50 for k in range(500)] + [0] * 500 + [30 + k % 50 for k in range(500)]
    use = card_use(polled(tmp_path, percents, renewed_hz=50, hz=100), names={})
    assert use.facts["longest_idle_s"].value == pytest.approx(10, abs=0.03)
    assert use.facts["util_mean"].value == pytest.approx(sum(percents) / 150_000, abs=0.003)


def test_a_pause_in_the_polling_hides_nothing_up_to_what_a_reading_averages() -> None:
    idle = series([0.0] * 300, step_ns=S // 100)
    idle.stale[:] = np.arange(300) % 10 > 0
    short, long = (replace(idle, t_ns=idle.t_ns + (np.arange(300) >= 100) * pause) for pause in (S // 10, S // 2))
    found = [card_use({"util": one}, names={}).facts["longest_idle_s"].value for one in (idle, short, long)]
    assert found == pytest.approx([2.99, 3.09, 2.0], abs=0.011)


def test_a_phase_s_mean_is_one_of_time_too(tmp_path: Path) -> None:
    percents = busy_then_idle(10.0)
    fields = polled(tmp_path, percents, renewed_hz=10, hz=100)
    began = int(fields["util"].t_ns[0])
    (step,) = join(fields, [(began + 10 * S, began + 50 * S, "step")])
    assert step.facts["util_mean"].value == pytest.approx(np.mean(percents[110:500]) / 100, abs=0.003)
    assert step.facts["util_idle_share"].value == pytest.approx(20 / 39, abs=0.003)
