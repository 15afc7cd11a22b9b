"""Order statistics, and 95 % intervals that treat a round, not a sample, as the unit of observation.

Samples of one round share the speed at which the host ran in it, so they are not independent: an interval taken
over them is far too narrow. Every interval here is a Student t interval over the medians of rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

Interval = tuple[float, float]

CONFIDENCE = 0.95
MIN_ROUNDS = 3
"""Fewer rounds give no interval: with one degree of freedom t is 12.7, and the ends lie decades apart."""
HALF_WIDTH_TOLD = 1.0
"""Of the median: an interval wider than this says only that the rounds disagree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Order statistics of n ≥ 1 values; quantiles interpolate linearly between order statistics (type 7)."""

    n: int
    min: float
    max: float
    p10: float
    p25: float
    median: float
    p75: float
    p90: float

    @property
    def iqr(self) -> float:
        """Interquartile range p75 − p25."""
        return self.p75 - self.p25


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """A 95 % interval, or None and why there is none; `rounds` is how many medians it rests on."""

    interval: Interval | None
    rounds: int
    why: str | None = None


def quantile(ordered: Sequence[float], q: float) -> float:
    """Quantile q (0…1) of values in ascending order, linear between neighbours; ValueError when there are none."""
    if not ordered:
        raise ValueError("a quantile of no values")
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = math.ceil(place)
    if low == high:
        return float(ordered[low])
    # Written so that equal neighbours give exactly their value.
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def median(values: Iterable[float]) -> float:
    """Median; ValueError when there are no values."""
    return quantile(sorted(values), 0.5)


def summarise(values: Iterable[float]) -> Summary:
    """Order statistics of the values; ValueError when there are none."""
    ordered = sorted(values)
    p10, p25, p50, p75, p90 = (quantile(ordered, q) for q in (0.1, 0.25, 0.5, 0.75, 0.9))
    return Summary(n=len(ordered), min=ordered[0], max=ordered[-1], p10=p10, p25=p25, median=p50, p75=p75, p90=p90)


def round_medians(pairs: Iterable[tuple[int, float]]) -> tuple[float, ...]:
    """Median of each round, in the order of round numbers, from (round, value) pairs."""
    rounds: dict[int, list[float]] = {}
    for number, value in pairs:
        rounds.setdefault(number, []).append(value)
    return tuple(median(rounds[number]) for number in sorted(rounds))


@lru_cache(maxsize=256)
def t_factor(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Two-sided quantile of Student's t with `degrees` ≥ 1 degrees of freedom."""
    from scipy.stats import t  # noqa: PLC0415 - a third of a second that --help need not pay

    return float(t.ppf(0.5 + confidence / 2, degrees))


def t_interval(values: Sequence[float], *, confidence: float = CONFIDENCE) -> Interval:
    """The t interval (95 %) of the mean of ≥ 2 independent values; of zero width when they are all equal."""
    count = len(values)
    if count < 2:
        raise ValueError("an interval needs two values or more")
    if min(values) == max(values):
        return (values[0], values[0])  # the mean of equal values need not be equal to them in floating point
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = t_factor(count - 1, confidence) * math.sqrt(variance / count)
    return (mean - half, mean + half)


def median_interval(medians: Sequence[float], value: float | None = None) -> Confidence:
    """95 % interval of a median from the medians of rounds, as `interval_of` gives it.

    `value` is the overall median that the interval is printed beside; the interval is widened, where needed, so
    that it holds it, which can only raise the coverage. There is none, with the reason, from fewer than MIN_ROUNDS
    rounds that differ, and where it would say nothing: times whose half-width is beyond HALF_WIDTH_TOLD.
    """
    count = len(medians)
    interval = interval_of(medians)
    if interval is None:
        texts = ("no samples", "one round: its samples are not independent, so there is no interval")
        text = texts[count] if count < 2 else f"{count} rounds: an interval needs {MIN_ROUNDS}"
        return Confidence(interval=None, rounds=count, why=text)
    middle = median(medians) if value is None else value
    if min(medians) > 0 and half_width(middle, interval) > HALF_WIDTH_TOLD:
        text = f"no interval: the {count} rounds disagree, it would be wider than the median itself"
        return Confidence(interval=None, rounds=count, why=text)
    return Confidence(interval=(min(interval[0], middle), max(interval[1], middle)), rounds=count)


def interval_of(medians: Sequence[float]) -> Interval | None:
    """95 % interval of what rounds have in common, however wide; None from fewer than MIN_ROUNDS that differ.

    Taken on the log scale (times are skewed to the right, and drift is a factor), linear when a value is ≤ 0.
    """
    if len(medians) >= 2 and min(medians) == max(medians):
        return (medians[0], medians[0])
    if len(medians) < MIN_ROUNDS:
        return None
    if min(medians) > 0:
        low, high = t_interval([math.log(m) for m in medians])
        return (_exp(low), _exp(high))
    return t_interval(medians)


def _exp(end: float) -> float:
    """Undo the logarithm of an end of an interval; infinite where a float cannot hold it."""
    return math.exp(end) if end < 700 else math.inf


def half_width(value: float, interval: Interval) -> float:
    """Half the width of an interval, as a fraction of the `value` it stands beside; infinite for a spread around 0."""
    half = (interval[1] - interval[0]) / 2
    if half <= 0:
        return 0.0
    return half / abs(value) if value else math.inf


def paired_rounds(
    base: Mapping[int, Sequence[float]], cand: Mapping[int, Sequence[float]]
) -> tuple[tuple[float, float], ...]:
    """(base, cand) medians of the rounds in which both were measured, in order."""
    return tuple((median(base[r]), median(cand[r])) for r in sorted(base.keys() & cand.keys()) if base[r] and cand[r])
