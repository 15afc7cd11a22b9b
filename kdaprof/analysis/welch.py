"""The ratio of two independent groups of rounds: Welch's t interval on the log scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

from kdaprof.analysis.stats import CONFIDENCE, Interval


def log_ratio(base: Sequence[float], cand: Sequence[float]) -> tuple[float, Interval]:
    """The ratio cand / base of geometric means, with its 95 % interval, from ≥ 2 positive medians of rounds each.

    The groups need not be of one size or spread (Welch, Biometrika 34, 1947; degrees of freedom by Satterthwaite).
    ValueError for fewer medians, or one that is not positive.
    """
    if min(len(base), len(cand)) < 2 or min(*base, *cand) <= 0:
        raise ValueError("a ratio needs two positive rounds of each side")
    a, b = ([math.log(value) for value in values] for values in (base, cand))
    middle = fmean(b) - fmean(a)
    parts = [(variance(logs) / len(logs), len(logs) - 1) for logs in (a, b)]
    squared = math.fsum(part for part, _ in parts)
    if squared == 0:
        return math.exp(middle), (math.exp(middle), math.exp(middle))
    from scipy.stats import t  # noqa: PLC0415 - a third of a second that --help need not pay

    degrees = squared**2 / math.fsum(part**2 / count for part, count in parts)
    half = float(t.ppf(0.5 + CONFIDENCE / 2, degrees)) * math.sqrt(squared)
    return math.exp(middle), (math.exp(middle - half), math.exp(middle + half))
