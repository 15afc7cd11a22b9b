from __future__ import annotations

import math

import pytest

from kdaprof.analysis.propagate import Estimate, difference, exact, one_minus, ratio, removed_share


def test_difference_adds_in_quadrature_each_side_apart() -> None:
    a, b = Estimate(100, (97, 106)), Estimate(40, (32, 44))
    assert difference(a, b) == Estimate(60, (60 - math.hypot(3, 4), 60 + math.hypot(6, 8)))


def test_a_difference_may_reach_below_zero() -> None:
    found = difference(Estimate(10, (9, 11)), Estimate(10, (8, 12)))
    assert found.interval == pytest.approx((-math.sqrt(5), math.sqrt(5)))


def test_ratio_is_taken_on_the_log_scale() -> None:
    found = ratio(Estimate(100, (50, 200)), Estimate(10, (10, 10)))
    assert found.value == 10
    assert found.interval == pytest.approx((5, 20))


def test_ratio_is_linear_when_the_numerator_may_be_negative() -> None:
    found = ratio(Estimate(1, (-2, 4)), Estimate(10, (10, 10)))
    assert found.interval == pytest.approx((-0.2, 0.4))


def test_a_part_without_an_interval_leaves_the_result_without_one() -> None:
    assert difference(Estimate(3, None), Estimate(1, (1, 1))).interval is None
    assert ratio(Estimate(3, (2, 4)), Estimate(1, None)).interval is None


def test_exact_parts_give_an_exact_result() -> None:
    assert ratio(exact(6), exact(3)) == Estimate(2, (2, 2))
    assert one_minus(exact(0.25)) == Estimate(0.75, (0.75, 0.75))
    assert removed_share(exact(100), exact(30), exact(20)) == Estimate(0.875, (0.875, 0.875))


def test_removed_share_counts_the_walls_error_once() -> None:
    # f = (100 - 30) / (100 - 20) = 7/8; a wall off by 8 moves f by (1 - f) / 80 * 8 = 1/80, not by two differences.
    found = removed_share(Estimate(100, (92, 108)), exact(30), exact(20))
    assert found.interval == pytest.approx((0.875 - 0.0125, 0.875 + 0.0125))


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(ValueError, match="zero"):
        ratio(exact(1), exact(0))
    with pytest.raises(ValueError, match="overhead"):
        removed_share(exact(5), exact(1), exact(5))
