"""What stands at the end of the page: ceilings, what measuring costs, how figures are taken, the environment."""

from __future__ import annotations

from kdaprof.report.html.grids import plain_grid
from kdaprof.report.html.model import Block, Section, Subject
from kdaprof.report.labels import FIGURES, IDLE_CLASSES
from kdaprof.report.machine import environment_rows
from kdaprof.runs.units import format_ns


def taken(subject: Subject) -> Section | None:
    """How each figure that is shown was taken, and what the instruments cost."""
    facts = [(name, fact) for cell in subject.scene.cells for name, fact in cell.result.facts.items()]
    shown = {name for name, f in facts if f.value or (f.value is not None and name not in IDLE_CLASSES)}
    blocks: list[Block] = []
    if shown:
        rows = [(text, name, how) for name, (text, how) in FIGURES.items() if name in shown]
        blocks.append(plain_grid("taken-table", "Figures", ("figure", "name in JSON", "how it is taken"), rows))
    costs = [(cost.name.replace("_", " "), format_ns(cost.ns), f"{cost.n:,}") for cost in subject.scene.record.overhead]
    if costs:
        note = "Unprofiled samples carry at most one NVTX range each; the other instruments have repeats of their own."
        headers = ("instrument", "cost of one use", "n")
        blocks.append(plain_grid("costs-table", "What measuring costs", headers, costs, right=(1, 2), notes=(note,)))
    lead = "Wall and host come only from unprofiled calls, busy only from profiled ones."
    return Section("taken", "How it was measured", tuple(blocks), lead) if blocks else None


def environment(subject: Subject) -> Section:
    """Versions, card, host, settings and the command."""
    grid = plain_grid("environment-table", "Environment", ("what", "as it was"), environment_rows(subject.scene))
    return Section("environment", "Environment", (grid,), "What it takes to measure the same again.")
