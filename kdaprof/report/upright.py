"""A terminal's table: figures down, phases or sizes across, so that three fit into 80 columns without being cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kdaprof.report.pairs import Pair
from kdaprof.report.sheets import Spec, column
from kdaprof.report.tables import DASH, Entry, LeftOut, Table, common_scales, entry_of, figure_table
from kdaprof.report.units import Scale
from kdaprof.runs.facts import Fact

_GAP = 2


@dataclass(frozen=True, slots=True)
class UprightRow:
    """One figure over all that stands across."""

    header: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Upright:
    """Rows of figures under what stands `across`; `notes` are the reasons of missing entries, numbered from 1."""

    across: tuple[str, ...]
    rows: tuple[UprightRow, ...]
    notes: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    shared_rules: tuple[str, ...] = ()
    """Rules that refuse every refused figure of the table, beside others: said once below it, not in each place."""

    def text(self, entry: Entry) -> str:
        """An entry without markup: `(0.156) Q02` when refused, `— (1)` when missing."""
        if entry.missing is not None:
            return f"{DASH} ({self.notes.index(entry.missing) + 1})"
        own = [rule for rule in entry.rules if rule not in self.shared_rules]
        return " ".join([f"({entry.text})", *own]) if entry.rules else entry.text

    def widths(self) -> tuple[int, list[int]]:
        """Width of the first column, and of each phase's."""
        first = max((len(row.header) for row in self.rows), default=0)
        columns = [[phase, *(self.text(row.entries[i]) for row in self.rows)] for i, phase in enumerate(self.across)]
        return first, [max(map(len, texts)) for texts in columns]


def upright(pairs: Sequence[Pair], specs: Sequence[Spec], across: Sequence[str]) -> Upright:
    """The figures of `specs` for pairs that `across` tells apart; an interval stands in a row below its figure."""
    figures = [column(pairs, (*spec[:3], None)) for spec in specs]
    flat = figure_table([("across", across)], figures)
    times = common_scales(figures)["ns"]
    rows: list[UprightRow] = []
    spreads = {header or fact: (mode, fact) for mode, fact, header, spread in specs if spread == "ci95"}
    for i, col in enumerate(flat.columns[1:], 1):
        rows.append(UprightRow(col.header, tuple(row[i] for row in flat.rows)))
        name = next((name for name in spreads if col.header.split(" ")[0] == name), None)
        if name:
            rows += _interval([pair.fact(*spreads[name]) for pair in pairs], times)
    reasons = (entry.missing for row in rows for entry in row.entries if entry.missing is not None)
    return Upright(tuple(across), tuple(rows), tuple(dict.fromkeys(reasons)), flat.left_out, _shared(rows))


def upright_of(table: Table) -> Upright:
    """A table whose first column names its rows, drawn as it stands: its other headers where phases would be."""
    rows = tuple(UprightRow(row[0].text, row[1:]) for row in table.rows)
    reasons = (entry.missing for row in rows for entry in row.entries if entry.missing is not None)
    headers = tuple(column.header for column in table.columns[1:])
    return Upright(headers, rows, tuple(dict.fromkeys(reasons)), table.left_out, _shared(rows))


def blocks(table: Upright, width: int) -> list[Upright]:
    """The table cut between phases so that each block fits `width`; at least one phase a block, however wide."""
    first, widths = table.widths()
    starts, used = [0], first
    for i, column_width in enumerate(widths):
        if i > starts[-1] and used + _GAP + column_width > width:
            starts.append(i)
            used = first
        used += _GAP + column_width
    ends = [*starts[1:], len(widths)]
    return [
        replace(
            table,
            across=table.across[a:b],
            rows=tuple(replace(row, entries=row.entries[a:b]) for row in table.rows),
        )
        for a, b in zip(starts, ends, strict=True)
    ]


def _shared(rows: Sequence[UprightRow]) -> tuple[str, ...]:
    sets = {entry.rules for row in rows for entry in row.entries if entry.rules}
    common = set.intersection(*map(set, sets)) if sets else set()
    # One rule a figure is short enough to stand beside it, and is easier to read there.
    return tuple(sorted(common)) if any(len(rules) > 1 for rules in sets) else ()


def _interval(facts: Sequence[Fact | None], scale: Scale) -> list[UprightRow]:
    entries = []
    for found in facts:
        if found is None or found.value is None or found.ci95 is None:
            entries.append(Entry(""))
        else:
            low, high = scale.ends(found.value, *found.ci95)
            entries.append(Entry(f"{low}–{high}", entry_of(found, scale).rules))
    return [UprightRow("  95 %", tuple(entries))] if any(entry.text for entry in entries) else []
