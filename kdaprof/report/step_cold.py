"""A step's first run: what it costs against a warm one, and by which cause."""

from __future__ import annotations

from dataclasses import dataclass

from kdaprof.analysis.step.cold import cold_cost
from kdaprof.analysis.step.levers import halves_of
from kdaprof.report.gfm import plain, text_table
from kdaprof.report.scene import Scene
from kdaprof.report.step import step_name
from kdaprof.runs.cells import CellKey
from kdaprof.runs.compiles import SlowStep
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_bytes, format_fraction, format_ns

CAUSES = {
    "triton": "Triton compiles",
    "triton-cached": "Triton reads its cache",
    "torch.compile": "torch.compile",
    "autotune": "autotuning (without its compiling)",
    "library": "library handles",
}
HEADERS = ("cause", "count", "time", "share", "work", "longest")
LEGEND = (
    "Time that causes share is the innermost one's, so that rows add up to the step. Work: summed over threads. The "
    "allocator's calls of the driver are counted, not timed: their time is in the rest, with loading kernels and the "
    "step's own work. A library handle is made apart in a fresh process only."
)


def cold_section(scene: Scene) -> list[str]:
    """The first step of each cell, in this process and in a fresh one where that was measured."""
    lines: list[str] = []
    for first in first_steps(scene):
        table = text_table(HEADERS, cause_rows(first.step), right=range(1, 5))
        lines += ["", f"**{plain(step_name(first.key))}:** {first.told}.", "", *table]
    return [*lines[1:], "", LEGEND] if lines else []


@dataclass(frozen=True, slots=True)
class FirstStep:
    """A cell's step 0, and the warm wall to hold it against."""

    key: CellKey
    step: SlowStep
    warm: Fact | None

    @property
    def told(self) -> str:
        """`step 0 of this process takes 1.20 s, 24 × a warm step of 50.0 ms`."""
        return f"step 0 {where(self.step)} takes {format_ns(self.step.wall_ns)}, {against(self.step, self.warm)}"


def first_steps(scene: Scene) -> tuple[FirstStep, ...]:
    """Every step 0 of the run, in its order; not of half a step, which finds everything warm from the whole one."""
    halves = halves_of([cell.key for cell in scene.record.cells])
    walls = {cell.id: cell.facts["wall_ns"] for cell in scene.results.cells if "wall_ns" in cell.facts}
    return tuple(
        FirstStep(cell.key, step, walls.get(cell.id))
        for cell in scene.record.cells
        if cell.key not in halves
        for step in (cell.observed.slow_steps if cell.observed is not None else ())
        if step.fresh or step.index == 0
    )


def where(step: SlowStep) -> str:
    """Which process's step 0 it is."""
    return "in a fresh process with empty caches" if step.fresh else "of this process"


def cause_rows(step: SlowStep) -> list[list[str]]:
    """The step by cause under `HEADERS`, what no cause explains last."""
    cost = cold_cost(step)
    rows = [
        [
            CAUSES[part.cause],
            f"{part.events}" + (f" ({part.count} configurations)" if part.cause == "autotune" else ""),
            format_ns(part.ns),
            _share(part.ns, cost.wall_ns),
            format_ns(part.work_ns),
            part.longest,
        ]
        for part in cost.parts
    ]
    if step.driver_allocs is not None:
        grown = format_bytes(step.reserved_growth_bytes or 0)
        rows.append(["allocator grows", f"{step.driver_allocs} segments, {grown}", "—", "—", "—", ""])
    return [*rows, ["rest", "", format_ns(cost.rest_ns), _share(cost.rest_ns, cost.wall_ns), "", ""]]


def _share(part_ns: int, wall_ns: int) -> str:
    return format_fraction(part_ns / wall_ns) if wall_ns else "—"


def against(step: SlowStep, warm: Fact | None) -> str:
    """`42.1 × a warm step of 50.0 ms`; without a ratio, and why, where the warm wall may not be quoted."""
    if warm is None or not warm.value:
        return "with no warm step to compare"
    if not warm.quotable:
        rules = ", ".join(sorted({reason.rule for reason in warm.reasons}))
        return f"not compared: the warm wall is refused ({rules})"
    ratio = step.wall_ns / warm.value
    shown = f"{ratio:.3g}" if ratio < 1000 else f"{ratio:,.0f}"
    return f"{shown} × a warm step of {format_ns(float(warm.value))}"
