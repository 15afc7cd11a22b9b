"""Sections of report.md that are tables of figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kdaprof.report.gfm import plain, table_lines, text_table
from kdaprof.report.labels import FIGURES, IDLE_CLASSES
from kdaprof.report.pairs import Cell, Pair
from kdaprof.report.rules import rule_title
from kdaprof.report.scene import Scene
from kdaprof.report.sheets import graph_table, idle_table, main_table, more_table, watched_table
from kdaprof.report.tables import DASH, Column, Entry, Table, entry_of, missing_text
from kdaprof.report.units import scale_for
from kdaprof.runs.facts import Fact
from kdaprof.runs.results import Stage

GRAPH_LEGEND = (
    "launch overhead = eager wall − busy; removed = (eager wall − graph wall) / launch overhead. Feeding new "
    "inputs costs the input copy on top of the graph's wall. The floor is what this card's own ceilings allow."
)
IDLE_LEGEND = (
    "Classes add up to idle = wall − busy. Their shares come from profiled repeats, scaled to the unprofiled call; "
    "in brackets the range between recording CUDA only and CPU + CUDA. Drained by sync is a cause, not a class: it "
    "overlaps the others."
)
WATCHED_LEGEND = (
    "busy / wall is the device-busy share of one call; utilisation is sampled by NVML while the same call runs in "
    "a loop. The two should resemble each other. Inflation is why wall and host never come from profiled repeats."
)
STAGES = "A share of the call is Amdahl's figure: what the call would gain if the stage cost nothing."
_STAGES_SHOWN = 10


def figures(scene: Scene) -> list[str]:
    """One row a cell, and what the numbers in it are."""
    table = main_table(scene.pairs, scene.naming)
    if not table.rows:
        return []
    return [*drawn(table), "", counted(scene.pairs)]


def from_eager_to_floor(scene: Scene) -> list[str]:
    """What capturing the call into a CUDA Graph buys, down to the card's own limit."""
    table = graph_table(scene.pairs, scene.naming)
    if not table.rows:
        return []
    replays = [fact for pair in scene.pairs if (fact := pair.fact("graph", "wall_ns"))]
    if all(fact.value is None for fact in replays):
        return [f"Nothing was captured: {plain('; '.join(dict.fromkeys(map(missing_text, replays))))}."]
    return [*drawn(table), "", GRAPH_LEGEND]


def idle(scene: Scene) -> list[str]:
    """Wall − busy by what the host was doing, in brackets the range between the two kinds of recording."""
    table = idle_table(scene.pairs, scene.naming)
    if not table.has_figures:
        return []
    return [*drawn(table), "", IDLE_LEGEND]


def instruments(scene: Scene) -> list[str]:
    """The device-busy share beside sampled utilisation, which it should resemble, and what the profiler costs."""
    table = watched_table(scene.pairs, scene.naming)
    if not table.has_figures:
        return []
    return [*drawn(table), "", WATCHED_LEGEND]


def more(scene: Scene) -> list[str]:
    """Figures that are asked for less often."""
    table = more_table(scene.pairs, scene.naming)
    return drawn(table) if table.has_figures else []


def spread(scene: Scene) -> list[str]:
    """Every wall with n and spread, graph replays too."""
    table = spread_table(scene)
    return ["Wall of one call, steady samples.", "", *drawn(table)] if table else []


def spread_table(scene: Scene) -> Table | None:
    """n, min, p10, median, p90 and max of every wall; None without one."""
    cells = [cell for cell in scene.cells if _value(cell, "wall_ns") is not None]
    if not cells:
        return None
    walls = [cell.result.facts["wall_ns"] for cell in cells]
    scale = scale_for("ns", (fact.value for fact in walls if fact.value is not None))
    names = [header for header, _ in scene.naming.columns] + ["mode", "n"]
    parts = ("min", "p10", "value", "p90", "max")
    columns = [Column(name, right=name == "n", figures=False) for name in names]
    columns += [Column(f"{'median' if part == 'value' else part} {scale.label}") for part in parts]
    rows = []
    for cell, fact in zip(cells, walls, strict=True):
        texts = [get(cell.key) for _, get in scene.naming.columns] + [cell.key.mode, str(fact.n)]
        ends = (getattr(fact, part) for part in parts)
        rules = entry_of(fact, scale).rules
        values = tuple(Entry(DASH) if end is None else Entry(scale.text(end), rules) for end in ends)
        rows.append((*map(Entry, texts), *values))
    return Table(tuple(columns), tuple(rows))


def stages(scene: Scene) -> list[str]:
    """Device time of one call by stage, and its share of the call: how much the call gains if the stage were free."""
    table = stages_table(scene)
    return [*drawn(table), "", STAGES] if table else []


def stages_table(scene: Scene) -> Table | None:
    """Stages with device time and share, the longest first; None where no stage was told apart."""
    cells = [cell for cell in scene.cells if cell.result.stages]
    if not cells:
        return None
    scale = scale_for("ns", (stage.busy_ns for cell in cells for stage in cell.result.stages))
    names = [*(header for header, _ in scene.naming.columns), "mode", "stage"]
    columns = [Column(name, right=False, figures=False) for name in names]
    columns += [Column("kernels"), Column(f"device {scale.label}"), Column("share of the call")]
    rows = []
    for cell in cells:
        lead = [get(cell.key) for _, get in scene.naming.columns] + [cell.key.mode]
        rules = entry_of(cell.result.facts["wall_ns"], scale).rules
        for stage in _longest(cell.result.stages):
            share = Entry(DASH) if stage.share is None else Entry(scale_for("fraction", ()).text(stage.share), rules)
            figures = (Entry(str(stage.kernels)), Entry(scale.text(stage.busy_ns)), share)
            rows.append((*map(Entry, [*lead, stage.name]), *figures))
            lead = [""] * len(lead)
    return Table(tuple(columns), tuple(rows))


def taken(scene: Scene) -> list[str]:
    """How each figure that is shown was taken."""
    facts = [(name, fact) for cell in scene.cells for name, fact in cell.result.facts.items()]
    shown = {name for name, f in facts if f.value or (f.value is not None and name not in IDLE_CLASSES)}
    if not shown:
        return []
    rows = [(label, f"`{name}`", how) for name, (label, how) in FIGURES.items() if name in shown]
    return text_table(("figure", "name in JSON", "how"), rows)


def drawn(table: Table) -> list[str]:
    """A table with the legend of what is struck out in it; a table without figures shrinks to its reasons."""
    if not table.has_figures:
        return [f"Not measured: {plain('; '.join(left.reasons))}." for left in table.left_out]
    lines = table_lines(table)
    if table.rules():
        named = ", ".join(f"{rule} {rule_title(rule)}" for rule in table.rules())
        lines += ["", f"~~Struck out~~ figures may not be quoted: {named}. See [Refused figures](#refused-figures)."]
    return lines


def counted(pairs: Sequence[Pair]) -> str:
    """Of how many samples and repeats the figures of the main table are."""
    facts = [fact for pair in pairs if (fact := pair.fact("eager", "wall_ns")) and fact.value is not None]
    if not facts:
        return "No figure was measured."
    watched = [fact for pair in pairs if (fact := pair.fact("eager", "gpu_busy_ns")) and fact.value is not None]
    text = f"Medians: wall and host of {_range(facts)} steady samples"
    text += f", busy of {_range(watched)} profiled repeats" if watched else ""
    return f"{text}. In brackets: 95 % interval of the median, from rounds."


def _range(facts: Iterable[Fact]) -> str:
    counts = sorted({fact.n for fact in facts})
    return f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"


def _longest(found: Sequence[Stage]) -> list[Stage]:
    ordered = sorted(found, key=lambda stage: -stage.busy_ns)
    rest = ordered[_STAGES_SHOWN:]
    if len(rest) < 2:
        return ordered
    shares = [stage.share for stage in rest if stage.share is not None]
    others = Stage(
        name=f"{len(rest)} others",
        kernels=sum(stage.kernels for stage in rest),
        busy_ns=sum(stage.busy_ns for stage in rest),
        share=sum(shares) if len(shares) == len(rest) else None,
    )
    return [*ordered[:_STAGES_SHOWN], others]


def _value(cell: Cell, name: str) -> float | int | None:
    fact = cell.fact(name)
    return fact.value if fact else None
