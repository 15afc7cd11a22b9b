from __future__ import annotations

import math
import random

import pytest

from kdaprof.analysis import stats
from kdaprof.analysis.interleaved import compare_interleaved, geometric_mean


def test_order_statistics_interpolate_between_neighbours() -> None:
    s = stats.summarise([5, 1, 3, 2, 4])
    assert (s.n, s.min, s.max, s.median) == (5, 1, 5, 3)
    assert (s.p10, s.p25, s.p75, s.p90) == pytest.approx((1.4, 2, 4, 4.6))
    assert s.iqr == 2
    assert stats.median([4, 1]) == 2.5


@pytest.mark.parametrize("value", [7, 0.1, 0, 244_000_000])
def test_constant_samples_have_a_zero_width_interval_and_no_division_error(value: float) -> None:
    s = stats.summarise([value] * 9)
    assert s.min == s.p10 == s.median == s.p90 == s.max == value
    assert s.iqr == 0
    found = stats.median_interval([value] * 5, value)
    assert found.interval == (value, value)
    assert stats.half_width(value, found.interval) == 0


def test_no_values_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="no values"):
        stats.summarise([])


def test_rounds_are_reduced_to_their_medians_in_order() -> None:
    pairs = [(1, 10), (0, 3), (1, 30), (0, 1), (1, 20), (0, 2), (-1, 99)]
    assert stats.round_medians(pairs) == (99, 2, 20)


def test_interval_is_the_t_interval_of_log_round_medians() -> None:
    medians = [100.0, 110.0, 121.0]  # logs are equally spaced by ln 1.1
    found = stats.median_interval(medians)
    half = 4.302652729911275 * math.log(1.1) / math.sqrt(3)  # t(0.975, 2) = 4.3027, s = ln 1.1
    assert found.rounds == 3
    assert found.interval == pytest.approx((110 * math.exp(-half), 110 * math.exp(half)))


def test_interval_is_linear_where_there_is_no_logarithm() -> None:
    found = stats.median_interval([-1.0, 0.0, 1.0])
    half = 4.302652729911275 / math.sqrt(3)
    assert found.interval == pytest.approx((-half, half))


def test_interval_holds_the_median_that_stands_beside_it() -> None:
    found = stats.median_interval([100.0, 100.1, 100.2, 100.1], 97.0)
    assert found.interval is not None
    assert found.interval[0] == 97.0


@pytest.mark.parametrize(
    ("medians", "why"),
    [
        ([], "no samples"),
        ([5.0], "one round"),
        ([5.0, 5.1], "2 rounds: an interval needs 3"),
        ([1.0, 1.0, 50.0], "the 3 rounds disagree"),
        ([1.0, 1e300, 1e-300], "the 3 rounds disagree"),
    ],
)
def test_rounds_that_tell_nothing_give_a_reason_instead_of_an_interval(medians: list[float], why: str) -> None:
    found = stats.median_interval(medians)
    assert found.interval is None
    assert why in (found.why or "")
    assert found.rounds == len(medians)


def test_an_interval_of_more_than_half_its_median_is_still_told() -> None:
    found = stats.median_interval([80.0, 100.0, 130.0])
    assert found.interval is not None
    assert 0.5 < stats.half_width(100.0, found.interval) < stats.HALF_WIDTH_TOLD
    assert stats.median_interval([7.0, 7.0]).interval == (7.0, 7.0)  # counts that agree have nothing to tell apart


def test_half_width_is_half_the_interval_and_infinite_around_zero() -> None:
    assert stats.half_width(100, (95, 120)) == pytest.approx(0.125)
    assert stats.half_width(0, (-1, 1)) == math.inf
    assert stats.half_width(0, (0, 0)) == 0


def test_interval_covers_the_true_median_in_about_95_of_100_runs_under_drift() -> None:
    rng = random.Random(7)
    hits = 0
    for _ in range(600):
        rounds = [[math.log(200) + level + rng.gauss(0, 0.05) for _ in range(9)] for level in _drift(rng, 5)]
        medians = [math.exp(stats.median(r)) for r in rounds]
        interval = stats.median_interval(medians).interval
        assert interval is not None
        hits += interval[0] <= 200 <= interval[1]
    assert 0.925 <= hits / 600 <= 0.975


# ------------------------------------------------------------------ A against B


def _rounds(values: list[list[float]]) -> dict[int, list[float]]:
    return dict(enumerate(values))


@pytest.mark.parametrize(
    ("factors", "verdict"),
    [
        ([0.80, 0.81, 0.79, 0.80, 0.80], "faster"),
        ([1.30, 1.29, 1.31, 1.30, 1.28], "slower"),
        ([1.001, 0.999, 1.002, 0.998, 1.0], "same"),
        ([1.0] * 5, "same"),
        ([0.80, 1.30, 0.90, 1.20, 0.85], "not-established"),
        ([0.99, 1.04, 0.99, 1.03, 1.01], "not-established"),
    ],
)
def test_verdict_of_an_interleaved_comparison(factors: list[float], verdict: str) -> None:
    levels = [100.0, 130.0, 90.0, 110.0, 70.0]  # drift that both sides share
    base = _rounds([[x, x * 1.01, x * 0.99] for x in levels])
    cand = _rounds([[x * f, x * f * 1.01, x * f * 0.99] for x, f in zip(levels, factors, strict=True)])
    found = compare_interleaved(base, cand)
    assert found.verdict == verdict
    assert found.value == pytest.approx(geometric_mean(factors))
    assert found.interval is not None
    assert found.interval[0] <= found.value <= found.interval[1]


def test_four_rounds_establish_nothing_however_far_apart() -> None:
    found = compare_interleaved(_rounds([[10.0]] * 4), _rounds([[1.0]] * 4))
    assert found.verdict == "not-established"
    assert found.value == pytest.approx(0.1)
    assert "needs 5" in (found.why or "")


def test_only_rounds_that_both_sides_have_are_compared() -> None:
    base = {0: [10.0], 1: [10.0], 2: [10.0], 3: [10.0], 4: [10.0], 5: [99.0]}
    cand = {0: [9.0], 1: [9.0], 2: [9.0], 3: [9.0], 4: [9.0], -1: [500.0]}
    found = compare_interleaved(base, cand)
    assert (found.rounds, found.verdict) == (5, "faster")
    assert found.value == pytest.approx(0.9)


def test_a_round_of_zero_and_a_single_round_have_no_ratio() -> None:
    zero = compare_interleaved(_rounds([[0.0]] * 5), _rounds([[1.0]] * 5))
    assert (zero.value, zero.verdict) == (None, "not-established")
    assert "resolution" in (zero.why or "")
    one = compare_interleaved(_rounds([[2.0]]), _rounds([[1.0]]))
    assert (one.value, one.interval) == (None, None)


def _drift(rng: random.Random, count: int) -> list[float]:
    """Log level of each block: the host's speed wanders between blocks and holds within one."""
    return [rng.gauss(0, 0.012) for _ in range(count)]


def _false_positives(trials: int, seed: int) -> dict[str, float]:
    """Share of A/A comparisons called different: our verdict, and two bootstraps of the same data."""
    rng = random.Random(seed)
    called = {"t": 0, "rounds": 0, "samples": 0}
    for _ in range(trials):
        sides = [
            [[math.exp(level + rng.gauss(0, 0.03)) for _ in range(20)] for level in _drift(rng, 5)] for _ in range(2)
        ]
        found = compare_interleaved(_rounds(sides[0]), _rounds(sides[1]))
        called["t"] += found.verdict in ("faster", "slower")
        logs = [math.log(stats.median(b) / stats.median(a)) for a, b in zip(*sides, strict=True)]
        means = sorted(sum(rng.choices(logs, k=5)) / 5 for _ in range(200))
        called["rounds"] += stats.quantile(means, 0.025) > 0 or stats.quantile(means, 0.975) < 0
        flat = [[x for r in side for x in r] for side in sides]
        gaps = sorted(
            math.log(stats.median(rng.choices(flat[1], k=100)) / stats.median(rng.choices(flat[0], k=100)))
            for _ in range(80)
        )
        called["samples"] += stats.quantile(gaps, 0.025) > 0 or stats.quantile(gaps, 0.975) < 0
    return {name: count / trials for name, count in called.items()}


def test_an_a_a_comparison_under_drift_is_called_different_in_about_5_of_100() -> None:
    # A bootstrap takes what hangs together for independent: over samples it errs most, over few rounds still often.
    share = _false_positives(trials=500, seed=11)
    assert 0.03 <= share["t"] <= 0.07
    assert share["rounds"] >= 2 * share["t"]
    assert share["samples"] >= 3 * share["t"]
