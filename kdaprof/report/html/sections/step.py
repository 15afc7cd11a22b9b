"""Sections of a training step: attribution by phase, the modes side by side, levers, cold and warm, memory."""

from __future__ import annotations

from kdaprof.analysis.step.attribution import attributions
from kdaprof.report import step_cold, step_memory
from kdaprof.report.html.grids import entry_grid, plain_grid
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
    lead = "What the step gained where it was tried, then what it would gain, the largest first."
    return Section("levers", "Levers", (grid,), lead)


def cold(subject: Subject) -> Section | None:
    """Step 0 of each cell by cause, in this process and in a fresh one where that was measured."""
    blocks: list[Block] = [
        plain_grid(
            f"step-cold-{number}",
            f"{step_name(first.key)}: {first.told}",
            step_cold.HEADERS,
            step_cold.cause_rows(first.step),
            right=range(1, 5),
        )
        for number, first in enumerate(step_cold.first_steps(subject.scene))
    ]
    if not blocks:
        return None
    return Section("step-cold", "Step 0 by cause", (*blocks, Prose((step_cold.LEGEND,))), "What a first step costs.")


def memory(subject: Subject) -> Section | None:
    """What each recorded step does to the allocator's pool, and where its largest allocations come from."""
    found = step_memory.recorded(subject.scene)
    if not found:
        return None
    rows = [step_memory.memory_row(key, one) for key, one in found]
    right = range(1, len(step_memory.HEADERS))
    blocks: list[Block] = [
        plain_grid(
            "memory-pool", "Memory of a step", step_memory.HEADERS, rows, right=right, notes=(step_memory.LEGEND,)
        )
    ]
    for number, (key, one) in enumerate(found):
        title, sites = step_memory.sites_title(key), step_memory.site_rows(one)
        if sites:
            notes = (f"{one.missing}.",) if one.missing else ()
            name = f"memory-sites-{number}"
            blocks.append(plain_grid(name, title, step_memory.SITE_HEADERS, sites, right=(1, 2, 3), notes=notes))
        else:
            blocks.append(Prose((f"{title}: {step_memory.no_sites(one)}",)))
    lead = "What a step asks of the allocator, and whether its pool keeps growing."
    return Section("step-memory", "The step's memory", tuple(blocks), lead)
