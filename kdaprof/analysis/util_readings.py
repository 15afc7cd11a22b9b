"""Readings of the driver's own averages, each with the time that it stands for.

Polled faster than the driver renews its value, a reading repeats. A repeat is no observation, but it is time: busy
stretches, whose values differ, have more readings a second than idle ones, and a mean over readings would favour them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kdaprof.runs.facts import Fact, Unit
from kdaprof.runs.util_file import BoolArray, FieldSeries, FloatArray, IntArray

IDLE_AT_MOST = 0.05
"""A reading up to this counts as idle."""
GAP_SPACINGS = 3
"""A look that comes later than so many usual spacings, and than the driver averages, leaves a gap: of what lies in it
nothing is known."""
AVERAGED_NS = 166_666_667
"""What a reading averages over at least: a pause in the polling up to this hides nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """The fresh readings in order: each stands for `held_ns` from its `t_ns` on; `end_ns` is the time of the last look.

    A reading stands for the time up to the next, repeats of it included; before a gap, and at the end, the last look
    at it counts for the usual spacing.
    """

    t_ns: IntArray
    value: FloatArray
    held_ns: IntArray
    end_ns: int

    def only(self, keep: BoolArray) -> Readings:
        """Those of them."""
        return Readings(self.t_ns[keep], self.value[keep], self.held_ns[keep], self.end_ns)


def readings_of(series: FieldSeries | None) -> Readings:
    """The fresh readings of one field; none where there is no field."""
    if series is None or not series.t_ns.size:
        nothing = np.empty(0, np.int64)
        return Readings(nothing, np.empty(0), nothing, 0)
    steps = np.diff(series.t_ns)
    usual = max(1, int(np.median(steps))) if steps.size else 1
    stands = np.append(steps, usual)
    stands[stands > max(GAP_SPACINGS * usual, AVERAGED_NS)] = usual
    there = np.isfinite(series.value)
    fresh = there & ~series.stale
    repeated = np.cumsum(fresh) - 1  # which reading it is, or repeats
    counts = there & (repeated >= 0)
    held = np.bincount(repeated[counts], weights=stands[counts], minlength=int(fresh.sum()))
    return Readings(series.t_ns[fresh], series.value[fresh], held.astype(np.int64), int(series.t_ns[-1]))


def mean(seen: Readings) -> float:
    """By time, of readings (not empty)."""
    found = float(np.average(seen.value, weights=seen.held_ns))
    return min(max(found, float(seen.value.min())), float(seen.value.max()))  # rounding leads out of equal values


def quantiles(seen: Readings, wanted: Sequence[float]) -> list[float]:
    """Quantiles (0…1) by time of readings (not empty); where all stand for as long, those of `stats.quantile`."""
    order = np.argsort(seen.value, kind="stable")
    value, held = seen.value[order], seen.held_ns[order].astype(float)
    place = np.concatenate([[0.0], np.cumsum((held[1:] + held[:-1]) / 2)])
    found: list[float] = np.interp(np.array(wanted) * place[-1], place, value).tolist()
    return found


def idle_share(seen: Readings) -> Fact:
    """The share of the time at ≤ 5 %, of readings (not empty)."""
    idle = seen.value <= IDLE_AT_MOST
    share = float(seen.held_ns[idle].sum() / seen.held_ns.sum())
    by_time = "" if abs(share - idle.mean()) < 0.005 else ", by the time that each stands for"
    detail = f"{int(idle.sum())} of {idle.size} readings at ≤ 5 %{by_time}"
    return Fact(value=share, unit="fraction", n=int(idle.size), detail=detail)


def mean_fact(seen: Readings, unit: Unit, detail: str | None = None) -> Fact:
    """The mean by time of readings (not empty), with their spread."""
    return _fact(seen, mean(seen), unit, detail)


def median_fact(seen: Readings, unit: Unit, detail: str | None = None) -> Fact:
    """The median by time of readings (not empty), with their spread."""
    return _fact(seen, quantiles(seen, [0.5])[0], unit, detail)


def longest_idle_ns(seen: Readings) -> int:
    """The longest stretch of readings at ≤ 5 %; the last look stands for no time. A gap ends a stretch."""
    longest = current = 0
    ends = np.append(seen.t_ns, seen.end_ns)[1:]
    for value, start, held, end in zip(
        seen.value.tolist(), seen.t_ns.tolist(), seen.held_ns.tolist(), ends.tolist(), strict=True
    ):
        current = current + min(held, end - start) if value <= IDLE_AT_MOST else 0
        longest = max(longest, current)
        if held < end - start:
            current = 0
    return longest


def _fact(seen: Readings, value: float, unit: Unit, detail: str | None) -> Fact:
    p10, p90 = quantiles(seen, [0.1, 0.9])
    lowest, highest = float(seen.value.min()), float(seen.value.max())
    return Fact(
        value=value, unit=unit, n=int(seen.value.size), min=lowest, max=highest, p10=p10, p90=p90, detail=detail
    )
