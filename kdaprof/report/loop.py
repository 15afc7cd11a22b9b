"""A watched loop as text: the run's tables, and what watching it cost."""

from __future__ import annotations

import io

from rich.console import Console

from kdaprof.analysis.loop_cost import loop_cost
from kdaprof.report.terminal import show_run
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import RunResults
from kdaprof.runs.units import format_fraction, format_ns
from kdaprof.timeline.loop_ranges import WHOLE

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
    """`own cost: 0.9 µs a phase, 3.1 µs a step and 8 µs to store it, 20 µs in all: 0.1 % of a step (21.0 ms)`."""
    cost = loop_cost(record)
    if cost is None:
        return None
    step = f"{format_ns(cost.step_ns)} a step"
    step = f" and {step}" if cost.store_ns is None else f", {step} and {format_ns(cost.store_ns)} to store it"
    text = f"own cost: {format_ns(cost.phase_ns)} a phase{step}, {format_ns(cost.whole_ns)} in all"
    walls = [results.cell(cell.id).facts["wall_ns"].value for cell in record.cells if cell.key.phase == WHOLE]
    if not walls or not walls[0]:
        return text
    return f"{text}: {format_fraction(cost.whole_ns / walls[0])} of a step ({format_ns(walls[0])})"
