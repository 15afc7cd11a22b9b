"""Intervals of derived figures: what the intervals of the parts say about a difference, ratio or product.

The delta method, each side apart: a derived f(x, y, …) moves by ∂f/∂x · (x's distance to its own bound), and the
parts add in quadrature. Using the lower and the upper distances apart keeps skewed intervals skewed (Zou and
Donner's MOVER, Statistics in Medicine 27, 2008).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kdaprof.analysis.stats import Interval


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval, None where there is none."""

    value: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a derived figure: its estimate and the derivative of the figure by it."""

    part: Estimate
    slope: float


def propagate(value: float, terms: Sequence[Term]) -> Estimate:
    """`value` with the interval that its parts give it; without one when a part that matters has none."""
    below, above = [], []
    for term in terms:
        if term.slope == 0:
            continue
        if term.part.interval is None:
            return Estimate(value, None)
        low, high = term.part.interval
        down, up = term.part.value - low, high - term.part.value
        if term.slope < 0:
            down, up = up, down
        below.append(abs(term.slope) * down)
        above.append(abs(term.slope) * up)
    return Estimate(value, (value - math.hypot(*below), value + math.hypot(*above)))


def exact(value: float) -> Estimate:
    """A number without uncertainty."""
    return Estimate(value, (value, value))


def difference(a: Estimate, b: Estimate) -> Estimate:
    """The difference a − b."""
    return propagate(a.value - b.value, (Term(a, 1.0), Term(b, -1.0)))


def ratio(a: Estimate, b: Estimate) -> Estimate:
    """The ratio a / b, on the log scale where both intervals are positive; ValueError when b is 0."""
    if b.value == 0:
        raise ValueError("a ratio to zero")
    logs = (_log(a), _log(b))
    value = a.value / b.value
    if logs[0] is not None and logs[1] is not None:
        spread = difference(logs[0], logs[1])
        if spread.interval is not None:
            low, high = (math.exp(end - spread.value) for end in spread.interval)
            return Estimate(value, (value * low, value * high))
    return propagate(value, (Term(a, 1 / b.value), Term(b, -value / b.value)))


def removed_share(wall: Estimate, after: Estimate, busy: Estimate) -> Estimate:
    """(wall − after) / (wall − busy): the share of the launch overhead that capturing removed.

    `wall` stands in both differences, so they are not propagated apart: ∂/∂wall = (1 − f) / (wall − busy),
    ∂/∂after = −1 / (wall − busy), ∂/∂busy = f / (wall − busy). ValueError when wall equals busy.
    """
    overhead = wall.value - busy.value
    if overhead == 0:
        raise ValueError("there is no launch overhead to remove")
    share = (wall.value - after.value) / overhead
    return propagate(
        share, (Term(wall, (1 - share) / overhead), Term(after, -1 / overhead), Term(busy, share / overhead))
    )


def one_minus(part: Estimate) -> Estimate:
    """The complement 1 − part."""
    return propagate(1.0 - part.value, (Term(part, -1.0),))


def _log(estimate: Estimate) -> Estimate | None:
    if estimate.value <= 0 or (estimate.interval is not None and estimate.interval[0] <= 0):
        return None
    interval = estimate.interval
    logs = None if interval is None else (math.log(interval[0]), math.log(interval[1]))
    return Estimate(math.log(estimate.value), logs)
