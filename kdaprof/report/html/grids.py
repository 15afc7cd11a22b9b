"""Tables of figures for the page: the same columns as everywhere, each figure tied to its full record."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.report.html.model import Grid, Head, Spot
from kdaprof.report.labels import FIGURES
from kdaprof.report.pairs import Cell, Naming, Pair
from kdaprof.report.rules import short_list
from kdaprof.report.sheets import Spec, column
from kdaprof.report.tables import DASH, Column, Entry, Table, common_scales, entry_of, missing_text
from kdaprof.report.units import ErrorScale, Scale
from kdaprof.runs.facts import Fact

_SHARES = ("host_bound", "graph_removed", "floor_share", "util_mean", "util_idle_share")


def row_id(cell: Cell, fact: str) -> str:
    """Where a figure's full record stands on the page: cell ids and fact names are safe in fragments."""
    return f"f/{cell.record.id}/{fact}"


def figure_grid(
    name: str,
    caption: str,
    pairs: Sequence[Pair],
    names: Naming,
    specs: Sequence[Spec],
    *,
    notes: Sequence[str] = (),
    bars: bool = False,
    stacked: bool = False,
) -> Grid:
    """One row a pair, one column a spec; columns without any value are left out, and a note says why."""
    told = [pair for pair in pairs if any(_has(pair.fact(spec[0], spec[1])) for spec in specs)]
    absent = [names.name(pair.key) for pair in pairs if pair not in told]
    pairs = told
    columns = [column(pairs, spec) for spec in specs]
    scales = common_scales(columns)
    heads = [Head(header, header, right=False) for header, _ in names.columns]
    kept: list[tuple[Spec, Scale, tuple[Fact | None, ...], str | None]] = []
    lost: dict[tuple[str, ...], list[str]] = {}
    for spec, figure in zip(specs, columns, strict=True):
        scale = ErrorScale(figure.unit) if figure.is_error else scales[figure.unit]
        if not any(fact and fact.value is not None for fact in figure.facts):
            reasons = tuple(dict.fromkeys(missing_text(fact) for fact in figure.facts if fact and fact.missing))
            lost.setdefault(reasons, []).append(figure.header)
            continue
        mode, fact_name = spec[0], spec[1]
        title = " ".join(filter(None, (figure.header, scale.label)))
        csv = fact_name if mode == "eager" else f"graph_{fact_name}"
        heads.append(Head(title, csv, hint=FIGURES[fact_name][1]))
        kept.append((spec, scale, figure.facts, figure.spread))
    rows = []
    for i, pair in enumerate(pairs):
        row = [Spot(get(pair.key)) for _, get in names.columns]
        for spec, scale, facts, spread in kept:
            cell = pair.graph if spec[0] == "graph" else pair.eager
            row.append(fact_spot(cell, spec[1], facts[i], scale, spread, bars=bars))
        rows.append(tuple(row))
    said = [f"Not shown: {', '.join(headers)} ({'; '.join(why)})." for why, headers in lost.items() if why]
    said += [f"Nothing of this for {short_list(absent)}."] if absent else []
    return Grid(
        id=name,
        caption=caption,
        heads=tuple(heads),
        rows=tuple(rows),
        notes=(*notes, *said),
        row_heads=len(names.columns),
        breaks=_groups(rows, len(names.columns)),
        stacked=stacked,
    )


def _has(fact: Fact | None) -> bool:
    return fact is not None and fact.value is not None


def fact_spot(
    cell: Cell | None, name: str, fact: Fact | None, scale: Scale, spread: str | None, *, bars: bool = False
) -> Spot:
    """A figure's place: as text, as a bare number, and with the link to its record."""
    entry = entry_of(fact, scale, spread)
    share = None
    if bars and fact is not None and fact.value is not None and name in _SHARES:
        share = min(max(float(fact.value), 0.0), 1.0)
    text, opens, ends = entry.text.partition(" [")
    return Spot(
        text=text,
        raw="" if fact is None or fact.value is None else f"{fact.value:.10g}",
        fact=row_id(cell, name) if cell is not None and fact is not None else "",
        rules=entry.rules,
        missing=entry.missing or "",
        share=share,
        spread=opens + ends,
    )


def breaks(names: Sequence[str]) -> frozenset[int]:
    """Rows at which a new group begins: where the first column changes, if it ever holds still."""
    found = frozenset(i for i in range(1, len(names)) if names[i] != names[i - 1])
    return found if len(found) < len(names) - 1 else frozenset()


def _groups(rows: Sequence[Sequence[Spot]], names: int) -> frozenset[int]:
    """Where the first of the naming columns that holds still for a while changes: the path, or the phase."""
    found = (breaks([row[i].text for row in rows]) for i in range(names))
    return next((group for group in found if group), frozenset())


def plain_grid(
    name: str,
    caption: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    notes: Sequence[str] = (),
    row_heads: int = 1,
) -> Grid:
    """A table of texts; `right` lists the columns that are figures."""
    heads = tuple(Head(text, text, right=i in right) for i, text in enumerate(headers))
    return Grid(
        name,
        caption,
        heads,
        tuple(tuple(Spot(text, raw=text) for text in row) for row in rows),
        tuple(notes),
        row_heads,
        breaks([row[0] for row in rows]),
    )


def entry_grid(name: str, caption: str, table: Table, *, notes: Sequence[str] = (), stacked: bool = False) -> Grid:
    """A finished table of the reports as it stands, for figures that are no facts of one cell."""
    heads = tuple(_head(col) for col in table.columns)
    rows = tuple(tuple(_spot(entry) for entry in row) for row in table.rows)
    told = [f"Not shown: {', '.join(left.headers)} ({'; '.join(left.reasons)})." for left in table.left_out]
    leading = next((i for i, col in enumerate(table.columns) if col.figures), len(heads))
    groups = breaks([row[0].text for row in rows])
    return Grid(name, caption, heads, rows, (*notes, *told), max(leading, 1), groups, stacked=stacked)


def _head(col: Column) -> Head:
    return Head(col.header, col.header, right=col.right)


def _spot(entry: Entry) -> Spot:
    text, opens, ends = entry.text.partition(" [")
    raw = "" if entry.text == DASH else entry.text
    return Spot(text, raw, "", entry.rules, entry.missing or "", spread=opens + ends)
