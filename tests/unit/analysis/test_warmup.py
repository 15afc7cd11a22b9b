from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kdaprof.analysis.view import WarmUp
from kdaprof.analysis.warmup import find_warmup


def found(walls: Sequence[float]) -> WarmUp:
    return find_warmup([(index, round(wall)) for index, wall in enumerate(walls)])


def noisy(count: int, level: float = 1_000_000, sigma: float = 0.02, seed: int = 3) -> list[float]:
    rng = random.Random(seed)
    return [level * rng.lognormvariate(0, sigma) for _ in range(count)]


def test_a_quiet_series_is_steady_from_step_0() -> None:
    warm = found(noisy(110))
    assert (warm.steady_from, warm.spikes, warm.n) == (0, (), 110)


@pytest.mark.parametrize("wall", [0, 1, 244_000_000])
def test_a_constant_series_has_no_change_point_and_no_division_error(wall: int) -> None:
    warm = found([wall] * 40)
    assert (warm.steady_from, warm.change_points) == (0, ())


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_a_few_samples_show_no_steady_state_and_say_what_they_miss(count: int) -> None:
    warm = found([5_000_000] * count)
    assert warm.steady_from is None
    assert f"{count} sample" in warm.detail
    assert "needs 5" in warm.detail


@pytest.mark.parametrize("factor", [2, 20, 90_000])
def test_a_cold_first_step_is_cut_off(factor: float) -> None:
    warm = found([1_000_000 * factor, *noisy(60)])
    assert (warm.steady_from, warm.change_points[:1]) == (1, (1,))
    assert warm.level_ns == pytest.approx(1_000_000, rel=0.02)
    assert "times the steady level" in warm.detail


def test_a_cold_part_of_several_levels_is_cut_off_whole() -> None:
    warm = found([2e9, *noisy(4, 8e6), *noisy(6, 2e6, seed=5), *noisy(90)])
    assert warm.steady_from == 11


def test_a_fast_first_call_does_not_hide_the_cold_part_behind_it() -> None:
    warm = found([1e6, *noisy(20, 5e6), *noisy(60)])
    assert warm.steady_from == 21


def test_drift_of_the_host_is_no_warm_up() -> None:
    rng = random.Random(9)
    drift = [1e6 * (1.25 - 0.25 * i / 110) * rng.lognormvariate(0, 0.02) for i in range(110)]
    assert found(drift).steady_from == 0
    waves = [1e6 * (1.12 if (i // 20) % 2 else 0.9) * rng.lognormvariate(0, 0.02) for i in range(110)]
    assert found(waves).steady_from == 0


def test_re_tuning_in_the_steady_part_is_counted_and_does_not_end_it() -> None:
    walls = noisy(110)
    walls[0] = 3e9
    for place in (40, 77):
        walls[place] = 5e7
    warm = found(walls)
    assert (warm.steady_from, warm.spikes) == (1, (40, 77))
    assert "2 spikes" in warm.detail


def test_a_spike_below_three_times_the_level_is_not_counted() -> None:
    walls = noisy(110)
    walls[40] = 2.7e6
    assert (found(walls).steady_from, found(walls).spikes) == (0, ())


def test_tuning_at_every_eighth_step_is_no_steady_state() -> None:
    walls = [1e8 if i % 8 == 0 else wall for i, wall in enumerate(noisy(110))]
    warm = found(walls)
    assert warm.steady_from is None
    assert "still tuning" in warm.detail


def test_a_series_that_jumps_at_random_has_no_steady_level() -> None:
    rng = random.Random(5)
    warm = found([1e6 * rng.choice((1, 1, 1, 5)) * rng.lognormvariate(0, 0.3) for _ in range(60)])
    assert (warm.steady_from, warm.spikes) == (None, ())
    assert "limit 10%" in warm.detail


@pytest.mark.parametrize(
    "walls",
    [
        [1e9 * 0.93**i for i in range(60)],  # gets faster for ever
        [1e6 * 1.05**i for i in range(60)],  # gets slower for ever: throttling, a leak
        [*noisy(50), *noisy(50, 2e6)],  # moved in the middle and stayed
        [*noisy(80, 4e6), *noisy(12)],  # became warm when it was too late
    ],
)
def test_what_never_converges_is_called_that_with_the_criterion(walls: list[float]) -> None:
    warm = found(walls)
    assert warm.steady_from is None
    assert "level" in warm.detail
    assert "limit" in warm.detail


def test_a_host_that_drifts_by_a_third_stays_warm() -> None:
    """From one end of ± 30 % to the other and back is a host, not a step that still tunes: Q02 judges its interval."""
    drifting = [*noisy(40, 6.5e6), *noisy(15, 4.1e6), *noisy(40, 6.5e6)]
    assert found(drifting).steady_from == 0
    tuned_again = [*noisy(40, 6.5e6), *noisy(15, 3.1e6), *noisy(40, 6.5e6)]
    assert found(tuned_again).steady_from is None


def test_a_series_that_ends_cold_is_not_steady() -> None:
    warm = found([*noisy(10), *noisy(6, 9e6, sigma=0.01)])
    assert warm.steady_from is None


def test_positions_are_sample_indices_not_places() -> None:
    warm = find_warmup([(10 + 2 * i, round(wall)) for i, wall in enumerate([5e7, *noisy(30)])])
    assert (warm.steady_from, warm.change_points[0]) == (12, 12)


def test_a_long_series_is_cut_in_bounded_work() -> None:
    warm = found([3e7] * 500 + noisy(20_000))
    assert warm.steady_from is not None
    assert 500 <= warm.steady_from <= 505
