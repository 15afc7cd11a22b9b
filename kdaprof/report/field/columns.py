"""Columns of a field table: a figure, and the smallest and largest sample behind it; and what is struck out in it."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.report.rules import rule_title
from kdaprof.report.tables import FigureColumn, Table
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


def medians(walls: Sequence[Fact | None]) -> list[FigureColumn]:
    """Median with its interval, smallest and largest sample."""
    return [
        column("median", "ns", walls, "ci95"),
        column("min", "ns", [end_of(fact, "min") for fact in walls]),
        column("max", "ns", [end_of(fact, "max") for fact in walls]),
    ]


def by_which_rules(table: Table, words: str) -> list[str]:
    """A paragraph for below the table: `words` and the rules that refuse figures in it; nothing without any."""
    rules = table.rules()
    return ["", f"{words} {', '.join(f'{rule} {rule_title(rule)}' for rule in rules)}."] if rules else []
