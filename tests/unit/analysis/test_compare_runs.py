"""Comparing stored runs: the rounds are those of the figures, and the interval is Welch's."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from scipy.stats import ttest_ind

from kdaprof.analysis.celldata import gather
from kdaprof.analysis.compare import SERIES, decide, gate_of
from kdaprof.analysis.compare_shapes import mean_of_shapes
from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.analysis.stats import median
from kdaprof.analysis.welch import log_ratio

RUN = Path(__file__).parents[3] / "reports" / "h200-kda"


def test_the_samples_compared_are_those_of_the_figures() -> None:
    """On a run of an H200: the median of each series is the figure that the report shows, in every cell."""
    raw = load_raw(RUN)
    seen = 0
    results = derive(raw)
    for cell in raw.record.cells:
        data = gather(raw, cell)
        for name, series in SERIES.items():
            fact = results.cell(cell.id).facts.get(name)
            if fact is not None and fact.value is not None:
                assert round(median(value for _, value in series(data))) == fact.value
                seen += 1
    assert seen > 40


@pytest.mark.parametrize(
    ("base", "cand"),
    [
        ((100.0, 101.0, 99.0, 100.5, 99.5), (80.0, 81.0, 79.0, 80.5, 79.5)),
        ((5.0, 9.0), (7.0, 7.1, 6.9, 7.3, 6.8, 7.0, 7.2)),
    ],
)
def test_the_interval_is_welch_s(base: tuple[float, ...], cand: tuple[float, ...]) -> None:
    value, (low, high) = log_ratio(base, cand)
    a, b = ([math.log(v) for v in values] for values in (base, cand))
    expected = ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert (math.log(low), math.log(high)) == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert math.log(value) == pytest.approx(sum(b) / len(b) - sum(a) / len(a))


def test_equal_rounds_have_an_interval_of_no_width() -> None:
    assert log_ratio((4.0, 4.0), (2.0, 2.0, 2.0)) == (0.5, (0.5, 0.5))


@pytest.mark.parametrize(("base", "cand"), [((1.0,), (1.0, 2.0)), ((1.0, 0.0), (1.0, 2.0)), ((1.0, 2.0), ())])
def test_no_ratio_from_too_little(base: tuple[float, ...], cand: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="two positive rounds"):
        log_ratio(base, cand)


def test_a_mean_across_shapes_weighs_each_the_same_and_counts_a_round_once() -> None:
    shaken = {0: 1.0, 1: 1.1, 2: 0.9, 3: 1.05, 4: 0.95}
    base = {number: 100.0 * by for number, by in shaken.items()}
    sides = {
        "small": (base, {n: v * 0.5 for n, v in base.items()}),
        "large": (base, {n: v * 2 for n, v in base.items()}),
    }
    found = mean_of_shapes("a/*/b", "wall_ns", sides, 0.02)
    _, alone = log_ratio(tuple(base.values()), tuple(base.values()))
    assert found.ratio == pytest.approx(1.0)
    assert found.interval == pytest.approx(alone)  # two shapes that move together say no more than one
    assert (found.shapes, found.rounds, found.verdict) == (("small", "large"), (5, 5), "not-established")
    slower = {name: (one, {n: v * 3 for n, v in one.items()}) for name, (one, _) in sides.items()}
    assert mean_of_shapes("a/*/b", "wall_ns", slower, 0.02).verdict == "slower"


def test_rounds_that_a_shape_lacks_are_left_out_of_the_mean() -> None:
    few = {0: 1.0, 1: 1.0}
    found = mean_of_shapes("a/*/b", "wall_ns", {"x": (few, few), "y": ({**few, 2: 1.0}, few)}, 0.02)
    assert (found.ratio, found.rounds) == (None, (2, 2))
    assert "rounds that every shape has: 2 and 2" in (found.why or "")
    with pytest.raises(ValueError, match="needs two"):
        mean_of_shapes("a/*/b", "wall_ns", {"x": (few, few)}, 0.02)


@pytest.mark.parametrize(
    ("interval", "rounds", "gate"),
    [
        ((0.9, 1.05), 5, "pass"),
        ((0.9, 1.051), 5, "not-established"),
        ((1.04, 1.08), 5, "not-established"),
        ((1.051, 1.08), 5, "fail"),
        ((1.2, 1.3), 4, "not-established"),
        ((0.5, 0.6), 4, "not-established"),
    ],
)
def test_the_gate(interval: tuple[float, float], rounds: int, gate: str) -> None:
    assert gate_of(interval, rounds, 0.05) == gate


def test_the_decision() -> None:
    assert decide(["pass", "pass", None]) == "go"
    assert decide(["pass", "not-established"]) == "not-established"
    assert decide(["pass", "not-established", "fail"]) == "no-go"
    assert decide([]) == decide([None]) == "not-established"
