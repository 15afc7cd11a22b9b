"""Figures that cover an interval (GPM, differences of two counters): weighed by the time that each of them covers.

How often they are read varies with their cost, so that a mean over readings would favour the short ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdaprof.runs.facts import Fact, Unit, absent
from kdaprof.runs.units import format_fraction, format_ns
from kdaprof.runs.util_file import FieldSeries, FloatArray, IntArray

Span = tuple[int, int]

WITHIN = 0.99
"""A figure of which this share lies within is one of what lies there: border and reading are not timed to the ns."""


@dataclass(frozen=True, slots=True, eq=False)
class Covered:
    """Values, and from when (`start_ns`) to when (`end_ns`) each holds; in order, apart."""

    start_ns: IntArray
    end_ns: IntArray
    value: FloatArray


def covered(series: FieldSeries, began_ns: int | None = None) -> Covered:
    """Each value covers the time since the reading before it, one without a value included.

    The first one covers the time since `began_ns`; where that is not known it is left out, unless it is the only one.
    """
    ends = series.t_ns
    starts = np.concatenate([[ends[0] - 1 if began_ns is None else began_ns], ends[:-1]]) if ends.size else ends
    keep = np.isfinite(series.value) & (ends > starts)
    if began_ns is None and keep.sum() > 1:
        keep[0] = False
    return Covered(starts[keep], ends[keep], series.value[keep])


def covered_fact(figures: Covered, unit: Unit) -> Fact:
    """Mean, p10 and p90 by time of figures (not empty)."""
    lengths = figures.end_ns - figures.start_ns
    detail = f"{len(lengths)} readings that cover {format_ns(int(lengths.sum()))}, weighed by it"
    return _weighed(figures.value, lengths.astype(float), unit, detail)


def covered_inside(figures: Covered, spans: list[Span], unit: Unit) -> Fact:
    """The same of what lies within `spans` (in order of their start; they may overlap).

    A figure that crosses a border is one of both sides: it is left out, or, where there is no other, counts by its
    time within; `detail` says which.
    """
    lengths = figures.end_ns - figures.start_ns
    within = _until(spans, figures.end_ns) - _until(spans, figures.start_ns)
    touching, whole = within > 0, within >= WITHIN * lengths
    if not touching.any():
        return absent(unit, "not-applicable", "no reading lies in it")
    crossing = int((touching & ~whole).sum())
    if whole.any():
        detail = f"{crossing} readings left out that cross its borders" if crossing else None
        return _weighed(figures.value[whole], lengths[whole].astype(float), unit, detail)
    others = 1 - float(within[touching].sum() / lengths[touching].sum())
    detail = f"every reading crosses its borders: {format_fraction(others)} of what they cover is not its own"
    return _weighed(figures.value[touching], within[touching].astype(float), unit, detail)


def _until(spans: list[Span], t_ns: IntArray) -> IntArray:
    """How much of the union of the spans lies before each time."""
    starts: list[int] = []
    ends: list[int] = []
    for start, end in spans:
        if ends and start <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            starts.append(start)
            ends.append(end)
    begin, finish = np.array(starts, np.int64), np.array(ends, np.int64)
    before = np.concatenate([[0], np.cumsum(finish - begin)])
    last = np.searchsorted(begin, t_ns, side="right") - 1
    reached: IntArray = before[np.maximum(last, 0)] + np.clip(t_ns - begin[np.maximum(last, 0)], 0, None)
    return np.where(last < 0, 0, np.minimum(reached, before[last + 1]))


def _weighed(values: FloatArray, weights: FloatArray, unit: Unit, detail: str | None) -> Fact:
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    ends = np.minimum(np.searchsorted(share, [0.1 - 1e-12, 0.9 - 1e-12]), len(values) - 1)
    p10, p90 = values[order][ends].tolist()
    mean = float(np.average(values, weights=weights))
    return Fact(
        value=mean,
        unit=unit,
        n=len(values),
        min=float(values.min()),
        max=float(values.max()),
        p10=p10,
        p90=p90,
        detail=detail,
    )
