"""A training step's sections: attribution by phase, modes side by side, levers."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.analysis.step.attribution import Attribution, PartRow, attributions
from kdaprof.analysis.step.levers import Lever, halves_of, levers
from kdaprof.report.gfm import plain
from kdaprof.report.labels import IDLE_CLASSES, label
from kdaprof.report.pairs import Cell
from kdaprof.report.scene import Scene
from kdaprof.report.sections import drawn
from kdaprof.report.tables import FigureColumn, Table, figure_table
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import EAGER_FACTS, GRAPH_FACTS
from kdaprof.runs.units import format_fraction

_SHOWN = ("wall_ns", "host_ns", "gpu_busy_ns", "idle_ns", "launches", "allocs", "alloc_bytes")
PHASES_LEGEND = (
    "A phase's wall is synchronised at its borders; an op's calls inside a phase are not, so that they have "
    "host time and GPU work only, and their share is host time / step. They are part of their phase's row. The "
    "backward of the built-in step first sets the gradients to None, so that it adds to none."
)
MODES_LEGEND = (
    "Error: of an eager step, loss, representation and gradients against the float64 recurrence; of a captured "
    "one, outputs of its replays and what they did to the weights against as many eager steps."
)
LEVERS_LEGEND = "What was measured stands first. Derived entries are Amdahl's limit, one at a time: they do not add up."


def by_phase(scene: Scene) -> list[str]:
    """Each eager step by its phases, the op's own part of each below it."""
    lines: list[str] = []
    for one in attributions(scene.record, scene.results):
        lines += ["", f"**{plain(step_name(one.whole))}**", "", *drawn(attribution_table(one)), "", added_up(one)]
        idle = idle_by_phase(one)
        lines += ["", *drawn(idle)] if idle.has_figures else []
    return [*lines[1:], "", PHASES_LEGEND] if lines else []


def step_name(key: CellKey) -> str:
    """`fused, B 8, T 512, iters 4`, and what else names it."""
    words = [key.path, *(f"{axis} {size}" for axis, size in key.shape)]
    words += [word for word in (key.context, key.mode) if word not in ("plain", "eager")]
    return ", ".join(words)


def attribution_table(one: Attribution) -> Table:
    """Phases down, figures across."""
    names = [("part", [_part(row) for row in one.rows]), ("calls", [str(row.calls or "") for row in one.rows])]
    columns = [_column(name, one.rows, "ci95" if name == "wall_ns" else None) for name in _SHOWN]
    columns.append(FigureColumn("share of step", "fraction", tuple(row.share for row in one.rows)))
    return figure_table(names, columns)


def idle_by_phase(one: Attribution) -> Table:
    """The GPU's idle of each phase by what the host was doing; classes that are 0 everywhere are left out."""
    rows = [row for row in one.rows if row.kind in ("phase", "step")]
    told = [n for n in IDLE_CLASSES if any(f is not None and f.value for r in rows for f in (r.facts.get(n),))]
    return figure_table([("idle of", [row.name for row in rows])], [_column(name, rows, None) for name in told])


def _column(name: str, rows: Sequence[PartRow], spread: str | None) -> FigureColumn:
    return FigureColumn(label(name), EAGER_FACTS[name], tuple(row.facts.get(name) for row in rows), spread)


def _part(row: PartRow) -> str:
    return f"· of it {row.name.partition('.')[2]}" if row.kind == "op" else row.name


def added_up(one: Attribution) -> str:
    """How the phases add up to the step, and why where they do not."""
    wall = one.rows[-1].facts["wall_ns"]
    if one.added_up.value is None or not wall.value:
        return f"The phases cannot be added up: {plain(one.why or 'not measured')}."
    share = format_fraction(float(one.added_up.value) / float(wall.value))
    if one.why is None:
        return f"The phases add up to {share} of the step."
    return f"The phases add up to {share} of the step: {plain(one.why)}."


def modes(scene: Scene) -> list[str]:
    """The step in every mode that was asked for, side by side."""
    table = modes_table(scene)
    return [*drawn(table), "", MODES_LEGEND] if table else []


def modes_table(scene: Scene) -> Table | None:
    """A row a step and mode; None where there is eager alone."""
    halves = halves_of([cell.key for cell in scene.cells])
    steps = [c for c in scene.cells if c.key.phase == "step" and c.key.workload == "step"]
    cells = [c for c in steps if c.key not in halves]
    if all(cell.key.mode == "eager" for cell in cells):
        return None
    names = [("step", [step_name(c.key.sibling(mode="eager")) for c in cells]), ("mode", [c.key.mode for c in cells])]
    figures = [
        _mode_column(cells, name, "ci95" if name == "wall_ns" else None)
        for name in ("wall_ns", "gpu_busy_ns", "input_copy_ns", "pool_bytes", "error_l2")
    ]
    return figure_table(names, figures)


def _mode_column(cells: Sequence[Cell], name: str, spread: str | None) -> FigureColumn:
    unit = GRAPH_FACTS[name]
    facts = tuple(cell.fact(name) for cell in cells)
    return FigureColumn(label(name), unit, facts, spread, is_error=name.startswith("error_"))


def levers_section(scene: Scene) -> list[str]:
    """What the step would take without each part (derived), and what it took where it was tried (measured)."""
    table = levers_table(scene)
    return [*drawn(table), "", LEVERS_LEGEND] if table else []


def levers_table(scene: Scene) -> Table | None:
    """From and to: of each step what was measured, then what is derived, the largest gain first; None without one."""
    found = sorted(levers(scene.record, scene.results), key=lambda lever: (lever.whole.id, not lever.measured))
    if not found:
        return None
    return figure_table(
        [
            ("step", [step_name(lever.whole) for lever in found]),
            ("if this were free", [lever.name for lever in found]),
            ("how known", [_how(lever) for lever in found]),
        ],
        [
            FigureColumn("from", "ns", tuple(lever.now for lever in found)),
            FigureColumn("to", "ns", tuple(lever.then for lever in found), "ci95"),
        ],
    )


def _how(lever: Lever) -> str:
    return "measured here" if lever.measured else "derived"
