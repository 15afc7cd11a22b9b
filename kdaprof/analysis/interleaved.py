"""Is B really faster than A? The verdict from interleaved rounds (A B B A …), and "not established" is one of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kdaprof.analysis.stats import CONFIDENCE, Interval, paired_rounds, t_interval
from kdaprof.analysis.stats import MIN_ROUNDS as FEWEST
from kdaprof.runs.samples import Sample

Comparison = Literal["faster", "slower", "same", "not-established"]

SAME_BAND = 0.02
"""`same` when the interval of the ratio lies within 1 ± this."""
MIN_ROUNDS = 5
"""Fewer interleaved rounds establish nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """cand / base over interleaved rounds: below 1, the candidate is faster. None with `why` when it cannot be said."""

    value: float | None
    interval: Interval | None
    rounds: int
    verdict: Comparison
    why: str | None = None


def compare_interleaved(
    base: Mapping[int, Sequence[float]],
    cand: Mapping[int, Sequence[float]],
    *,
    band: float = SAME_BAND,
    confidence: float = CONFIDENCE,
) -> Ratio:
    """Compare times by round: log ratio of the round medians, t interval over rounds.

    `base` and `cand` map a round's number to its samples. Both paths ran in each round, so what the host did in
    it falls on both and leaves the ratio; what remains is taken as independent from round to round.
    """
    pairs = paired_rounds(base, cand)
    if any(a <= 0 or b <= 0 for a, b in pairs):
        return Ratio(
            value=None,
            interval=None,
            rounds=len(pairs),
            verdict="not-established",
            why="a round's median is 0: below the clock's resolution",
        )
    if len(pairs) < FEWEST:
        text = f"rounds in common: {len(pairs)}; an interval needs {FEWEST}, a verdict {MIN_ROUNDS}"
        return Ratio(value=None, interval=None, rounds=len(pairs), verdict="not-established", why=text)
    return _of_logs([math.log(b / a) for a, b in pairs], band, confidence)


Sides = tuple[Mapping[int, Sequence[float]], Mapping[int, Sequence[float]]]
"""Samples by round of base and candidate."""


def compare_geometric(shapes: Sequence[Sides], *, band: float = SAME_BAND, confidence: float = CONFIDENCE) -> Ratio:
    """The geometric mean of cand / base over shapes, each shape weighing the same, with its interval over rounds.

    A round gives one figure, the mean of its shapes' log ratios, so that what the shapes of a round share is not
    counted as if it were independent. Only rounds that every shape has are used. ValueError without shapes.
    """
    if not shapes:
        raise ValueError("a geometric mean needs a shape")
    logs: dict[int, list[float]] = {}
    for base, cand in shapes:
        for number in sorted(base.keys() & cand.keys()):
            pair = paired_rounds({number: base[number]}, {number: cand[number]})
            if pair and min(pair[0]) > 0:
                logs.setdefault(number, []).append(math.log(pair[0][1] / pair[0][0]))
    means = [math.fsum(found) / len(found) for _, found in sorted(logs.items()) if len(found) == len(shapes)]
    if len(means) < FEWEST:
        text = f"rounds that every shape has: {len(means)}; an interval needs {FEWEST}, a verdict {MIN_ROUNDS}"
        return Ratio(value=None, interval=None, rounds=len(means), verdict="not-established", why=text)
    return _of_logs(means, band, confidence)


def geometric_mean(ratios: Sequence[float]) -> float:
    """Geometric mean of ratios over shapes; ValueError for none or for one that is not positive."""
    if not ratios or min(ratios) <= 0:
        raise ValueError("a geometric mean needs positive ratios")
    return math.exp(math.fsum(math.log(r) for r in ratios) / len(ratios))


def _of_logs(logs: Sequence[float], band: float, confidence: float) -> Ratio:
    low, high = (math.exp(end) for end in t_interval(logs, confidence=confidence))
    value = math.exp(math.fsum(logs) / len(logs))
    verdict, why = judge((low, high), len(logs), band)
    return Ratio(value=value, interval=(low, high), rounds=len(logs), verdict=verdict, why=why)


def judge(interval: Interval, rounds: int, band: float) -> tuple[Comparison, str | None]:
    """The verdict that a ratio's interval over so many rounds allows, and why it is none where it is none."""
    low, high = interval
    if rounds < MIN_ROUNDS:
        return "not-established", f"{rounds} rounds; a verdict needs {MIN_ROUNDS}"
    if high < 1:
        return "faster", None
    if low > 1:
        return "slower", None
    if low >= 1 - band and high <= 1 + band:
        return "same", None
    return "not-established", f"the interval {low:.3f}…{high:.3f} holds 1 and leaves 1 ± {band:g}"


def walls_by_round(samples: Iterable[Sample]) -> dict[int, list[float]]:
    """Walls (ns) of the samples that belong to a round, by its number: what `compare_interleaved` takes."""
    rounds: dict[int, list[float]] = defaultdict(list)
    for sample in samples:
        if sample.round >= 0 and sample.wall_ns is not None:
            rounds[sample.round].append(float(sample.wall_ns))
    return rounds
