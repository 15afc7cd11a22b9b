"""Sections of figures: the main table, eager to floor, idle, samples, utilisation, memory, roofline, stages, peers."""

from __future__ import annotations

from kdaprof.report.html.charts.ladder import ladder
from kdaprof.report.html.charts.memory import memory
from kdaprof.report.html.charts.roofline import Point, bound_of, points, roofline
from kdaprof.report.html.charts.series import series
from kdaprof.report.html.charts.split import split
from kdaprof.report.html.charts.watched import utilisation
from kdaprof.report.html.grids import entry_grid, figure_grid, plain_grid
from kdaprof.report.html.model import Block, Folded, Prose, Section, Subject
from kdaprof.report.labels import IDLE_CLASSES
from kdaprof.report.peers import NOT_HERE, peers_table
from kdaprof.report.sections import (
    GRAPH_LEGEND,
    IDLE_LEGEND,
    STAGES,
    WATCHED_LEGEND,
    counted,
    spread_table,
    stages_table,
)
from kdaprof.report.sheets import GRAPH, MORE, Spec, watched_table
from kdaprof.report.tables import Entry, Table
from kdaprof.runs.cells import PEER_PATHS
from kdaprof.runs.units import format_fraction, format_ns, format_number, format_rate

MAIN: tuple[Spec, ...] = (
    ("eager", "wall_ns", None, "ci95"),
    ("eager", "host_ns", None, None),
    ("eager", "gpu_busy_ns", None, None),
    ("eager", "host_bound", None, None),
    ("eager", "launches", None, None),
    ("graph", "wall_ns", "graph wall", None),
    ("eager", "floor_ns", None, None),
    ("eager", "error_l2", None, None),
)
_MEMORY: tuple[Spec, ...] = (
    ("eager", "allocs", None, None),
    ("eager", "alloc_bytes", None, None),
    ("eager", "peak_bytes", None, None),
    ("eager", "reserved_growth_bytes", None, None),
    ("graph", "pool_bytes", None, None),
)
_ROOF: tuple[Spec, ...] = (
    ("eager", "gpu_busy_ns", None, None),
    ("eager", "floor_ns", None, None),
    ("eager", "floor_share", None, "ci95"),
)


def main(subject: Subject) -> Section:
    """One row a cell."""
    pairs = [pair for pair in subject.scene.pairs if pair.eager]
    grid = figure_grid("main-table", "One call", pairs, subject.scene.naming, MAIN, bars=True)
    blocks: tuple[Block, ...] = (grid, Prose((counted(pairs),)))
    if not grid.rows:
        blocks = (Prose(("No cell was measured.",), "warn"),)
    return Section("figures", "Figures", blocks, "What a user waits, what the GPU does, and what is left.", "Figures")


def eager_to_floor(subject: Subject) -> Section | None:
    """What capturing the call into a CUDA Graph buys, down to the card's own limit."""
    scene = subject.scene
    pairs = [pair for pair in scene.pairs if pair.graph]
    drawn = ladder(scene.pairs, scene.naming)
    if not pairs and drawn is None:
        return None
    grid = figure_grid(
        "graph-table", "Eager → graph → busy → floor", pairs, scene.naming, GRAPH, notes=(GRAPH_LEGEND,), stacked=True
    )
    blocks = _some(drawn, grid if grid.rows else None)
    if not blocks:
        return None
    lead = "How much of a call is launch overhead, what a CUDA Graph takes away, and what only better kernels could."
    return Section("graph", "Eager → graph → busy → floor", blocks, lead)


def idle(subject: Subject) -> Section | None:
    """Where the GPU waits, by what the host was doing."""
    scene = subject.scene
    drawn = split(scene.pairs, scene.naming)
    if drawn is None:
        return None
    pairs = [pair for pair in scene.pairs if pair.eager]
    told = [name for name in IDLE_CLASSES if any((f := p.fact("eager", name)) and f.value for p in pairs)]
    specs: list[Spec] = [("eager", "idle_ns", "idle", None), *(("eager", name, None, "range") for name in told)]
    specs.append(("eager", "drained_by_sync_ns", None, "range"))
    grid = figure_grid("idle-table", "Idle by class", pairs, scene.naming, specs, notes=(IDLE_LEGEND,), stacked=True)
    return Section(
        "idle", "Where the GPU idles", (drawn, grid), "A call's wall is busy plus idle, and idle has causes."
    )


def samples(subject: Subject) -> Section | None:
    """Every sample, cold and warm, and the spread of the warm ones."""
    drawn, spread = series(subject), spread_table(subject.scene)
    table = entry_grid("spread-table", "Wall of one call, steady samples", spread) if spread else None
    blocks = _some(drawn, table)
    lead = "Shaded: the cold part, which no figure is taken from. Dotted: change points, which say where it ends."
    return Section("samples", "Cold and warm", blocks, lead) if blocks else None


def watched(subject: Subject) -> Section | None:
    """Two instruments that should agree: sampled utilisation, and busy / wall."""
    drawn = utilisation(subject)
    if drawn is None:
        return None
    table = watched_table(subject.scene.pairs, subject.scene.naming)
    grid = entry_grid("watched-table", "Instruments against each other", table, notes=(WATCHED_LEGEND,))
    lead = "Sampled utilisation says how often the card did anything; busy / wall says how much of a call it worked."
    return Section("utilisation", "Sampled utilisation", (drawn, grid), lead)


def allocator(subject: Subject) -> Section | None:
    """Allocations, peak, pool."""
    pairs, names = subject.scene.pairs, subject.scene.naming
    drawn = memory(pairs, names)
    if drawn is None:
        return None
    grid = figure_grid("memory-table", "Allocator", [pair for pair in pairs if pair.eager], names, _MEMORY)
    return Section("allocator", "Allocator", (drawn, grid), "Read outside the timed part, in repeats of its own.")


def roof(subject: Subject) -> Section | None:
    """The floor of each call and the ceilings it is made from."""
    drawn = roofline(subject)
    rates = [
        (c.name, format_rate(c.value, c.unit), c.provenance, str(c.n) if c.n else "", c.detail)
        for c in subject.scene.record.ceilings
    ]
    if not rates:
        return None
    blocks: list[Block] = list(_some(drawn))
    pairs = [pair for pair in subject.scene.pairs if pair.eager]
    grid = figure_grid("roof-table", "Floor", pairs, subject.scene.naming, _ROOF, bars=True)
    if any(len(row) > grid.row_heads for row in grid.rows):
        blocks.append(grid)
    reached = [_rate_row(subject, point) for point in points(subject) if point.quotable]
    if reached:
        headers = ("call", "FLOP/B", "rate while busy", "floor bound by", "busy", "floor / busy")
        blocks.append(plain_grid("rate-table", "Rates", headers, reached, right=(1, 2, 4, 5)))
    named = ("ceiling", "rate", "origin", "n", "how")
    blocks.append(plain_grid("ceilings-table", "Ceilings of this card", named, rates, right=(1, 3)))
    lead = "No call is faster than its operations at this card's rate, or its compulsory bytes at its bandwidth."
    return Section("roofline", "Roofline", tuple(blocks), lead)


def _rate_row(subject: Subject, point: Point) -> tuple[str, ...]:
    busy = float(point.cell.result.facts["gpu_busy_ns"].value or 0)
    return (
        subject.scene.naming.name(point.cell.key),
        format_number(point.intensity),
        format_rate(point.rate, "FLOP/s"),
        bound_of(subject, point.cell),
        format_ns(busy),
        format_fraction(point.share) if point.share is not None else "",
    )


def stages(subject: Subject) -> Section | None:
    """Device time by stage; a table a call, opened on demand."""
    table = stages_table(subject.scene)
    if table is None:
        return None
    lead = len(subject.scene.naming.columns) + 1  # what names the call stands in its first row alone
    groups: list[tuple[str, list[tuple[Entry, ...]]]] = []
    for row in table.rows:
        if row[0].text:
            groups.append((" ".join(entry.text for entry in row[:lead]), []))
        groups[-1][1].append(row[lead:])
    parts = tuple(
        (name, entry_grid(f"stages-{i}", name, Table(table.columns[lead:], tuple(rows))))
        for i, (name, rows) in enumerate(groups)
    )
    blocks = (Folded(parts, "stages.csv"), Prose((STAGES,)))
    return Section("stages", "Stages of the GPU work", blocks, "Which kernels the busy time is made of.")


def peers(subject: Subject) -> Section | None:
    """Other people's implementations in the same run; None where none was measured."""
    pairs = [pair for pair in subject.scene.pairs if pair.eager and pair.key.path in PEER_PATHS]
    if not pairs:
        return None
    grid = figure_grid("peers-table", "Peers", pairs, subject.scene.naming, MAIN)
    others = peers_table(subject.scene)
    known = (Prose((NOT_HERE,)), entry_grid("others", "Peers and others", others)) if others else ()
    lead = "Implementations of others, interleaved with ours in the same rounds."
    return Section("peers", "Peers", (grid, *known), lead)


def more(subject: Subject) -> Section | None:
    """Figures that are asked for less often."""
    pairs = [pair for pair in subject.scene.pairs if pair.eager]
    grid = figure_grid("more-table", "More figures", pairs, subject.scene.naming, MORE, stacked=True)
    if all(len(row) <= grid.row_heads for row in grid.rows):
        return None
    return Section("more", "More figures", (grid,), "Asked for less often.")


def _some(*blocks: Block | None) -> tuple[Block, ...]:
    return tuple(block for block in blocks if block is not None)
