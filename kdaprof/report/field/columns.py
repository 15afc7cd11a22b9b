"""Columns of a field table: a figure, and the smallest and largest sample behind it."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.report.tables import FigureColumn
from kdaprof.runs.facts import Fact, Unit


def column(header: str, unit: Unit, facts: Sequence[Fact | None], spread: str | None = None) -> FigureColumn:
    """A column of one figure, row by row."""
    return FigureColumn(header, unit, tuple(facts), spread)


def end_of(fact: Fact | None, which: str) -> Fact | None:
    """The smallest (`min`) or largest sample as a figure of its own, refused as the median is."""
    if fact is None or fact.value is None:
        return fact
    value = fact.min if which == "min" else fact.max
    if value is None:
        return None
    return Fact(value=value, unit=fact.unit, n=fact.n, quotable=fact.quotable, reasons=fact.reasons)
