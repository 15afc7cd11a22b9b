"""Q12: a line through too few points, or one whose fixed part may as well be nothing."""

from __future__ import annotations

from kdaprof.analysis.guards.rule import GuardRule
from kdaprof.analysis.view import CellView
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_ns

POINTS_MIN = 4


def why_not_fitted(name: str, fact: Fact, amounts: int | None = None) -> str | None:
    """Why a fitted `fixed_ns` or `slope_ns` may not be quoted.

    `fact.n` counts the points of the fit, `amounts` how many different amounts of work they have: 2 · 4 and 4 · 2 of
    two swept axes are one place on the line. None: as many as points.
    """
    if fact.value is None:
        return None
    if fact.n < POINTS_MIN:
        return f"fitted to {fact.n} points; a fit needs {POINTS_MIN}"
    if amounts is not None and amounts < POINTS_MIN:
        return f"fitted to {fact.n} points at {amounts} amounts of work; a fit needs {POINTS_MIN} amounts"
    if fact.ci95 is None:
        return "fitted without an interval"
    if name == "fixed_ns" and fact.ci95[0] <= 0 <= fact.ci95[1]:
        low, high = (format_ns(end) for end in fact.ci95)
        return f"the interval of the fixed part, {low} to {high}, contains 0: no fixed cost is established"
    return None


def _too_few(view: CellView, name: str, fact: Fact) -> str | None:
    return why_not_fitted(name, fact)


TOO_FEW_POINTS = GuardRule(
    id="Q12",
    title="too few points",
    explanation="A “fixed cost” of 465 ms was fitted to two readings, both of step 0.",
    touches=frozenset({"fixed_ns", "slope_ns"}),
    judge=_too_few,
    thresholds={"points_min": POINTS_MIN},
)
