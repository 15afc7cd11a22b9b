"""Is B really faster than A? The verdict from interleaved rounds (A B B A …), and "not established" is one of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kdaprof.analysis.stats import Interval, paired_rounds, t_interval

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
    base: Mapping[int, Sequence[float]], cand: Mapping[int, Sequence[float]], *, band: float = SAME_BAND
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
    if len(pairs) < 2:
        text = f"{len(pairs)} round in common; an interval needs 2, a verdict {MIN_ROUNDS}"
        return Ratio(value=None, interval=None, rounds=len(pairs), verdict="not-established", why=text)
    logs = [math.log(b / a) for a, b in pairs]
    low, high = (math.exp(end) for end in t_interval(logs))
    value = math.exp(math.fsum(logs) / len(logs))
    verdict, why = _judge((low, high), len(pairs), band)
    return Ratio(value=value, interval=(low, high), rounds=len(pairs), verdict=verdict, why=why)


def geometric_mean(ratios: Sequence[float]) -> float:
    """Geometric mean of ratios over shapes; ValueError for none or for one that is not positive."""
    if not ratios or min(ratios) <= 0:
        raise ValueError("a geometric mean needs positive ratios")
    return math.exp(math.fsum(math.log(r) for r in ratios) / len(ratios))


def _judge(interval: Interval, rounds: int, band: float) -> tuple[Comparison, str | None]:
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
