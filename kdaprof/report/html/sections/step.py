"""Sections of a training step: attribution by phase, the modes side by side, levers."""

from __future__ import annotations

from kdaprof.analysis.step.attribution import attributions
from kdaprof.report.html.grids import entry_grid
from kdaprof.report.html.model import Block, Prose, Section, Subject
from kdaprof.report.step import (
    LEVERS_LEGEND,
    MODES_LEGEND,
    PHASES_LEGEND,
    added_up,
    attribution_table,
    idle_by_phase,
    levers_table,
    modes_table,
    step_name,
)


def by_phase(subject: Subject) -> Section | None:
    """Each eager step by its phases, the op's own part of each below it, and how they add up."""
    scene = subject.scene
    blocks: list[Block] = []
    for number, one in enumerate(attributions(scene.record, scene.results)):
        name = step_name(one.whole)
        notes = (added_up(one),)
        blocks.append(entry_grid(f"phases-{number}", name, attribution_table(one), notes=notes, stacked=True))
        idle = idle_by_phase(one)
        if idle.has_figures:
            blocks.append(entry_grid(f"phases-idle-{number}", f"Idle of {name}", idle))
    if not blocks:
        return None
    lead = "What each phase of the step takes of the host and of the GPU, and the op's own part of it."
    return Section("phases", "The step by phase", (*blocks, Prose((PHASES_LEGEND,))), lead)


def modes(subject: Subject) -> Section | None:
    """The step in every mode that was asked for."""
    table = modes_table(subject.scene)
    if table is None:
        return None
    grid = entry_grid("modes-table", "The step in each mode", table, notes=(MODES_LEGEND,), stacked=True)
    return Section("modes", "The step in each mode", (grid,), "Eager, captured whole, or callables captured apart.")


def levers(subject: Subject) -> Section | None:
    """What the step would take without each part (derived), and what it took where that was tried (measured)."""
    table = levers_table(subject.scene)
    if table is None:
        return None
    grid = entry_grid("levers-table", "Levers", table, notes=(LEVERS_LEGEND,), stacked=True)
    return Section("levers", "Levers", (grid,), "What the step would gain, the largest first.")
