"""When a group has been measured enough: the criterion that ended its rounds, by name.

A host whose speed drifts by a third within a minute leaves five rounds with an interval that no figure can be quoted
with. More rounds narrow it; the rule looks at the width of the interval alone, never at the value or at a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kdaprof.analysis.stats import MIN_ROUNDS, half_width, interval_of, round_medians
from kdaprof.probe.plan import Effort
from kdaprof.probe.series import Series

HALF_WIDTH_WANTED = 0.08
"""Of the median; below the 10 % at which Q02 refuses a wall time, since the interval may widen as samples settle."""


def why_enough(group: Sequence[Series], rounds: int, took_ns: int, effort: Effort) -> str | None:
    """The criterion that is met after `rounds` rounds, in words; None while another round is worth its time."""
    if rounds < effort.rounds:
        return None
    widest = max((wall_half_width(series) for series in group), default=0.0)
    if widest <= HALF_WIDTH_WANTED:
        return f"every wall interval is within ± {HALF_WIDTH_WANTED:.0%}"
    if rounds >= effort.rounds * effort.rounds_most:
        return f"the most that are taken; the widest wall interval {_still(widest)}"
    if took_ns > effort.cell_seconds * 1e9 * max(1, len(group)):
        return f"out of time ({effort.cell_seconds:.0f} s a cell); the widest wall interval {_still(widest)}"
    return None


def _still(widest: float) -> str:
    return f"is still ± {widest:.0%}" if math.isfinite(widest) else f"is not known: that takes {MIN_ROUNDS} rounds"


def wall_half_width(series: Series) -> float:
    """Half-width of the interval of the wall median, as a share of the median, over the rounds so far."""
    pairs = [(s.round, s.wall_ns) for s in series.samples if s.repeat == "unprofiled" and s.round >= 0 and s.wall_ns]
    medians = round_medians((number, float(wall)) for number, wall in pairs)
    if len(medians) < 2:
        return float("inf") if medians else 0.0
    ordered = sorted(medians)
    middle = ordered[len(ordered) // 2]
    interval = interval_of(medians)
    return half_width(middle, interval) if interval else float("inf")
