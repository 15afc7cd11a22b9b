"""Findings about the caching allocator under a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdaprof.analysis.findings.figures import name_of, on_card
from kdaprof.analysis.step.allocator import GROWN_STEPS_MIN, GROWTH_BYTES_MIN, growth_of
from kdaprof.analysis.view import CellView
from kdaprof.runs.results import Finding
from kdaprof.runs.units import format_bytes


def never_reused(views: Sequence[CellView]) -> Iterator[Finding]:
    """Reserved memory that grows step by step: tensors that are kept, or blocks that no later request fits."""
    for view in views:
        memory = view.cell.observed.memory if view.cell.observed is not None else None
        growth = growth_of(memory) if memory is not None else None
        if not on_card(view) or growth is None or not growth.grows:
            continue
        why = "tensors hold it" if growth.held else "it lies free in blocks that no later request fits"
        yield Finding(
            id="reserved-never-reused",
            severity="warn",
            cell=view.cell.id,
            text=(
                f"{name_of(view)}: reserved memory grows by {format_bytes(growth.bytes_a_step)} a step and is never "
                f"reused ({growth.grown_steps} of {growth.steps} steps asked the driver for more): {why}"
            ),
            evidence={
                "bytes_a_step": growth.bytes_a_step,
                "total_bytes": growth.total_bytes,
                "grown_steps": growth.grown_steps,
                "held_share": growth.held_share,
            },
            threshold={"grown_steps_min": GROWN_STEPS_MIN, "growth_bytes_min": GROWTH_BYTES_MIN},
            next=(
                "Find what keeps the tensors (a list of losses, a graph that is retained)."
                if growth.held
                else "Pad lengths to a few sizes, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
            ),
        )
