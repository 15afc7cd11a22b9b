"""The geometric mean of two runs' ratios across the shapes of one call, each shape weighing the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from kdaprof.analysis.interleaved import Comparison, judge
from kdaprof.analysis.stats import MIN_ROUNDS as FEWEST
from kdaprof.analysis.stats import Interval
from kdaprof.analysis.welch import log_ratio

Medians = Mapping[int, float]
"""Median of each round, by its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapesMean:
    """cand / base over the shapes of a call. `cell` is its id with `*` for the shape; None with `why` without one."""

    cell: str
    fact: str
    shapes: tuple[str, ...]
    ratio: float | None
    interval: Interval | None
    rounds: tuple[int, int]
    verdict: Comparison
    why: str | None = None


def mean_of_shapes(cell: str, fact: str, sides: Mapping[str, tuple[Medians, Medians]], band: float) -> ShapesMean:
    """The mean over `sides`, (base, candidate) by shape, all medians above 0; ValueError for fewer than two shapes.

    A round of a run gives one figure, the mean of its shapes' logarithms, so that what its shapes share is not
    counted as if it were independent. Only rounds that every shape has are used; then Welch's interval, as for a cell.
    """
    if len(sides) < 2:
        raise ValueError("a mean across shapes needs two")
    base, cand = (_rounds([pair[side] for pair in sides.values()]) for side in (0, 1))
    counts = (len(base), len(cand))
    if min(counts) < FEWEST:
        text = f"rounds that every shape has: {counts[0]} and {counts[1]}; an interval needs {FEWEST} of each run"
        return ShapesMean(
            cell=cell, fact=fact, shapes=tuple(sides), ratio=None, interval=None, rounds=counts,
            verdict="not-established", why=text,
        )  # fmt: skip
    ratio, interval = log_ratio(base, cand)
    verdict, why = judge(interval, min(counts), band)
    return ShapesMean(
        cell=cell, fact=fact, shapes=tuple(sides), ratio=ratio, interval=interval, rounds=counts, verdict=verdict,
        why=why,
    )  # fmt: skip


def _rounds(shapes: Sequence[Medians]) -> tuple[float, ...]:
    """Geometric mean over the shapes of each round that all of them have."""
    shared = set.intersection(*(set(medians) for medians in shapes))
    return tuple(math.exp(fmean(math.log(medians[number]) for medians in shapes)) for number in sorted(shared))
