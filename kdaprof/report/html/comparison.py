"""Several runs on one page: what differs between their machines, then each cell's figures side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kdaprof.analysis.compare import NOT_INTERLEAVED, Row, Side, compare_runs
from kdaprof.analysis.compare_conditions import differences
from kdaprof.report.html.charts.base import blank, chart, log_time_axis, palette, safe, seconds
from kdaprof.report.html.grids import breaks, fact_spot, plain_grid
from kdaprof.report.html.model import Block, Chart, Grid, Head, Page, Prose, Section, Spot, Subject
from kdaprof.report.html.sections import proof, summary
from kdaprof.report.markdown import title
from kdaprof.report.pairs import Cell, Naming, naming
from kdaprof.report.units import ErrorScale, scale_for, utc
from kdaprof.runs.facts import EAGER_FACTS, GRAPH_FACTS, Fact
from kdaprof.runs.units import format_ns

_FIGURES = (
    ("wall_ns", "Wall", "What a user waits."),
    ("gpu_busy_ns", "GPU busy", "What the GPU works."),
    ("host_bound", "Host-bound share", "The share of the wall in which the GPU has nothing to do."),
    ("peak_bytes", "Peak memory", "Beyond what was allocated before the call."),
    ("error_l2", "Error", "Worst tensor against the reference, relative L2."),
)
_TONES = {"faster": "good", "slower": "bad", "same": "", "not-established": "dim"}


def comparison(subjects: Sequence[Subject]) -> Page:
    """The page of two runs or more; the first is the base of every ratio."""
    titles = [f"{letter}: {title(one.scene)}" for letter, one in zip(_letters(subjects), subjects, strict=True)]
    names = naming([cell for one in subjects for cell in one.scene.cells])
    sections = [_runs(subjects), _different(subjects)]
    sections += [section for spec in _FIGURES if (section := _figure(subjects, names, *spec)) is not None]
    for letter, one in zip(_letters(subjects), subjects, strict=True):
        made = summary.verdict(one)
        sections.append(Section(f"verdict-{letter}", f"Verdict of {letter}", made.blocks, one.scene.record.run))
    sections.append(proof.rules(_merged(subjects)))
    rules = {rule: text for one in subjects for rule, text in proof.rule_titles(one.scene.cells).items()}
    return Page(f"{len(subjects)} runs side by side", names.common, tuple(titles), tuple(sections), rules)


def _letters(subjects: Sequence[Subject]) -> list[str]:
    return [chr(ord("A") + i) if i < 26 else f"R{i + 1}" for i in range(len(subjects))]


def _runs(subjects: Sequence[Subject]) -> Section:
    headers = ("", "run", "GPU", "when", "whole", "tool", "commit")
    rows = []
    for letter, one in zip(_letters(subjects), subjects, strict=True):
        record, env = one.scene.record, one.scene.record.environment
        whole = "yes" if record.complete else "partial"
        gpu = env.gpu.name if env.gpu else "none"
        commit = (env.git_commit or "")[:10]
        rows.append((letter, record.run, gpu, utc(record.started_unix_ns), whole, record.tool, commit))
    lead = "A is the base of every ratio."
    return Section("verdict", "Runs", (plain_grid("runs-table", "Runs", headers, rows),), lead, "Read first")


def _different(subjects: Sequence[Subject]) -> Section:
    base, letters = subjects[0], _letters(subjects)
    rows = [
        (letter, diff.what, diff.base, diff.cand)
        for letter, one in zip(letters[1:], subjects[1:], strict=True)
        for diff in differences(base.scene.record, one.scene.record)
    ]
    blocks: list[Block] = [Prose((NOT_INTERLEAVED,), "warn")]
    if rows:
        blocks.append(plain_grid("different-table", "Not the same", ("run", "what", "A", "there"), rows, row_heads=2))
    else:
        blocks.append(Prose(("Machine, versions, settings, clocks, cache policy and shapes are the same.",), "good"))
    return Section("different", "What differs", tuple(blocks), "Named before any ratio is made.")


def _figure(subjects: Sequence[Subject], names: Naming, fact: str, heading: str, lead: str) -> Section | None:
    """A row a cell, a column a run, and the ratio to the first where one may be made."""
    modes = [mode for mode, known in (("eager", EAGER_FACTS), ("graph", GRAPH_FACTS)) if fact in known]
    keys = dict.fromkeys(c.key for one in subjects for c in one.scene.cells if c.key.mode in modes)
    sides = [{cell.key: cell for cell in one.scene.cells} for one in subjects]
    kept = [key for key in keys if any(_value(side.get(key), fact) is not None for side in sides)]
    if not kept:
        return None
    unit = EAGER_FACTS[fact]
    values = [value for key in kept for side in sides if (value := _value(side.get(key), fact)) is not None]
    scale = ErrorScale(unit) if fact == "error_l2" else scale_for(unit, values)
    ratios = _ratios(subjects, fact)
    heads = [Head(header, header, right=False) for header, _ in names.columns] + [Head("mode", "mode", right=False)]
    for i, letter in enumerate(_letters(subjects)):
        heads.append(Head(" ".join(filter(None, (letter, scale.label))), f"{letter}_{fact}"))
        if i and ratios:
            heads.append(Head(f"{letter} / A", f"{letter}_ratio"))
    rows = []
    for key in kept:
        row = [Spot(get(key)) for _, get in names.columns] + [Spot(key.mode)]
        for i, side in enumerate(sides):
            cell = side.get(key)
            spread = "ci95" if unit == "ns" else None
            spot = fact_spot(None, fact, cell.fact(fact) if cell else None, scale, spread)
            row.append(spot)
            if i and ratios:
                row.append(_ratio(ratios[i - 1].get(key.id)))
        rows.append(tuple(row))
    grid = Grid(
        f"{fact}-table",
        heading,
        tuple(heads),
        tuple(rows),
        row_heads=len(names.columns) + 1,
        breaks=breaks([row[0].text for row in rows]),
    )
    drawn = _beside(subjects, names, fact, heading) if unit == "ns" else None
    return Section(
        f"of-{fact}", heading, (drawn, grid) if drawn else (grid,), lead, "Figures" if fact == "wall_ns" else ""
    )


def _ratios(subjects: Sequence[Subject], fact: str) -> list[dict[str, Row]]:
    """Of each further run to the first, by cell; () for figures that are no series of times."""
    if fact not in ("wall_ns", "gpu_busy_ns"):
        return []
    base, *others = (Side(raw=one.raw, results=one.scene.results) for one in subjects)
    return [{row.cell: row for row in compare_runs(base, other, facts=(fact,)).rows} for other in others]


def _ratio(row: Row | None) -> Spot:
    if row is None:
        return Spot("—")
    if row.ratio is None or row.interval is None:
        return Spot("—", missing=row.why or "no ratio may be made")
    text = f"{row.ratio:.3f} [{row.interval[0]:.3f}, {row.interval[1]:.3f}] {row.verdict.replace('-', ' ')}"
    return Spot(text, f"{row.ratio:.10g}", tone=_TONES[row.verdict])


def _beside(subjects: Sequence[Subject], names: Naming, fact: str, heading: str) -> Chart:
    letters = _letters(subjects)
    colours = palette(letters)
    keys = list(dict.fromkeys(c.key for one in subjects for c in one.scene.cells))
    sides = [{cell.key: cell for cell in one.scene.cells} for one in subjects]
    kept = [key for key in keys if any(_value(side.get(key), fact) is not None for side in sides)]
    labels = [safe(names.name(key, mode=True)) for key in kept]
    every = [_value(side.get(key), fact) for key in kept for side in sides]
    axis = log_time_axis(seconds(every))
    figure = blank(110 + 26 * len(kept), xaxis=axis, yaxis={"autorange": "reversed", "automargin": True})
    for letter, side in zip(letters, sides, strict=True):
        facts: list[Fact | None] = [cell.fact(fact) if (cell := side.get(key)) else None for key in kept]
        found = [float(f.value) if f and f.value else None for f in facts]
        figure.add_scatter(
            x=seconds(found),
            y=labels,
            name=letter,
            mode="markers",
            marker={
                "size": 11,
                "color": colours[letter],
                "symbol": ["circle" if f and f.quotable else "circle-open" for f in facts],
                "line": {"width": 2, "color": colours[letter]},
            },
            customdata=[format_ns(value) if value else "" for value in found],
            hovertemplate=f"{letter}, %{{y}}<br>%{{customdata}}<extra></extra>",
        )
    says = f"{heading} of {len(kept)} cells in runs {', '.join(letters)}; the figures stand in the table below"
    return chart(fact, f"{heading}, run by run (logarithmic)", says, figure)


def _value(cell: Cell | None, name: str) -> float | None:
    fact = cell.fact(name) if cell else None
    return None if fact is None or fact.value is None else float(fact.value)


def _merged(subjects: Sequence[Subject]) -> Subject:
    """All cells of all runs, for what is counted over all of them."""
    first = subjects[0]
    cells = tuple(cell for one in subjects for cell in one.scene.cells)
    return Subject(first.raw, replace(first.scene, cells=cells), 0)
