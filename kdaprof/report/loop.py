"""A watched loop as text: the run's tables, and what watching it cost."""

from __future__ import annotations

import io

from rich.console import Console

from kdaprof.report.terminal import show_run
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import RunResults
from kdaprof.runs.units import format_fraction, format_ns

STEP_COST, PHASE_COST = "step_profiler_step", "step_profiler_phase"
_WIDTH = 110


def loop_text(record: RunRecord, results: RunResults) -> str:
    """The tables, the verdict and the findings of a loop, and the profiler's own cost beside its step."""
    stream = io.StringIO()
    show_run(
        Console(file=stream, width=_WIDTH, highlight=False, emoji=False, markup=False, no_color=True), record, results
    )
    cost = own_cost(record, results)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + (f"\n\n{cost}" if cost else "")


def own_cost(record: RunRecord, results: RunResults) -> str | None:
    """`own cost: 0.9 µs a phase and 3.1 µs a step, 12 µs in all: 0.06 % of a step (21.0 ms)`."""
    costs = {cost.name: cost.ns for cost in record.overhead}
    if not {STEP_COST, PHASE_COST} <= costs.keys():
        return None
    phases = [cell for cell in record.cells if cell.key.phase not in ("step", "other")]
    whole = costs[STEP_COST] + len(phases) * costs[PHASE_COST]
    text = (
        f"own cost: {format_ns(costs[PHASE_COST])} a phase and {format_ns(costs[STEP_COST])} a step, "
        f"{format_ns(whole)} in all"
    )
    walls = [results.cell(cell.id).facts["wall_ns"].value for cell in record.cells if cell.key.phase == "step"]
    if not walls or not walls[0]:
        return text
    return f"{text}: {format_fraction(whole / walls[0])} of a step ({format_ns(walls[0])})"
