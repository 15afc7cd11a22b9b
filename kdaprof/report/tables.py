"""Tables before they are drawn: entries that know whether they may be quoted and why they are missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kdaprof.report.labels import MISSING
from kdaprof.report.units import ErrorScale, Scale, scale_for
from kdaprof.runs.facts import Fact, Unit

DASH = "—"


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands in one place of a table.

    `rules` refuse the figure: it is shown struck out. `missing` is the reason for a figure that is not there.
    """

    text: str
    rules: tuple[str, ...] = ()
    missing: str | None = None

    @property
    def has_value(self) -> bool:
        """Whether there is a figure, quotable or not."""
        return self.missing is None and self.text != DASH


@dataclass(frozen=True, slots=True)
class Column:
    """A column's header and side; `figures` marks columns that may be left out when no row has a value."""

    header: str
    right: bool = True
    figures: bool = True


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Columns without a single value, and why."""

    headers: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of entries under columns, and what was left out of them."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def has_figures(self) -> bool:
        """Whether any figure is left to show."""
        return any(c.figures for c in self.columns) and bool(self.rows)

    def rules(self) -> tuple[str, ...]:
        """The rules that refuse something in this table, in order."""
        return tuple(sorted({rule for row in self.rows for entry in row for rule in entry.rules}))


@dataclass(frozen=True, slots=True)
class FigureColumn:
    """A column of one figure: header without unit, its facts row by row, and whether intervals are shown."""

    header: str
    unit: Unit
    facts: tuple[Fact | None, ...]
    spread: str | None = None
    """`ci95` or `range` (min to max) behind the value; None shows the value alone."""
    is_error: bool = False


def figure_table(names: Sequence[tuple[str, Sequence[str]]], figures: Sequence[FigureColumn]) -> Table:
    """A table of name columns (header, texts) and figure columns; columns without a value are left out, with reason."""
    columns = [Column(header, right=False, figures=False) for header, _ in names]
    drawn: list[list[Entry]] = [[Entry(text) for text in texts] for _, texts in names]
    empty: dict[tuple[str, ...], list[str]] = {}
    scales = common_scales(figures)
    for figure in figures:
        scale = ErrorScale(figure.unit) if figure.is_error else scales[figure.unit]
        entries = [entry_of(fact, scale, figure.spread) for fact in figure.facts]
        if any(entry.has_value for entry in entries):
            columns.append(Column(" ".join(filter(None, (figure.header, scale.label)))))
            drawn.append(entries)
        else:
            empty.setdefault(_reasons(figure.facts), []).append(figure.header)
    left_out = tuple(LeftOut(tuple(headers), reasons) for reasons, headers in empty.items() if reasons)
    return Table(tuple(columns), tuple(zip(*drawn, strict=True)), left_out)


def common_scales(figures: Sequence[FigureColumn]) -> dict[Unit, Scale]:
    """One scale a unit for the whole table, so that wall, busy and floor compare at a glance."""
    values: dict[Unit, list[float]] = {figure.unit: [] for figure in figures}
    for figure in figures:
        values[figure.unit] += [fact.value for fact in figure.facts if fact and fact.value is not None]
    return {unit: scale_for(unit, found) for unit, found in values.items()}


def entry_of(fact: Fact | None, scale: Scale, spread: str | None = None) -> Entry:
    """A fact as it stands in a column of this scale; None is a figure that this cell does not have."""
    if fact is None:
        return Entry(DASH)
    if fact.value is None:
        return Entry(DASH, missing=missing_text(fact))
    text = scale.text(fact.value)
    low, high = {"ci95": fact.ci95 or (None, None), "range": (fact.min, fact.max)}.get(spread or "", (None, None))
    if low is not None and high is not None and (low, high) != (fact.value, fact.value):
        text = f"{text} [{', '.join(scale.ends(fact.value, low, high))}]"
    rules = tuple(sorted({reason.rule for reason in fact.reasons})) if not fact.quotable else ()
    return Entry(text, rules)


def _reasons(facts: Sequence[Fact | None]) -> tuple[str, ...]:
    """Why a whole column is missing; a failed cell says so in its own row and counts only where nothing else does."""
    absent = [fact for fact in facts if fact and fact.missing]
    telling = [fact for fact in absent if fact.missing != "failed"] or absent
    return tuple(dict.fromkeys(missing_text(fact) for fact in telling))


def missing_text(fact: Fact) -> str:
    """`not applicable: not asked for`, without saying the kind twice."""
    kind = MISSING.get(fact.missing or "", "missing")
    detail = fact.detail or ""
    said = set(kind.split()) <= set(re.findall(r"[a-z]+", detail.lower()))
    return detail if said else f"{kind}: {detail}" if detail else kind
