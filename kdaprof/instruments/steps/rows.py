"""A finished step as samples: one row a phase, one for what lies outside all phases, one for the step itself."""

from __future__ import annotations

from collections.abc import Iterator

from kdaprof.instruments.steps.recorder import UNPROFILED
from kdaprof.instruments.steps.spans import StepSpans
from kdaprof.runs.cells import CellKey
from kdaprof.runs.samples import Sample
from kdaprof.timeline.loop_ranges import OTHER, WHOLE

ROUND_STEPS = 20
"""Steps of one round: samples of one round are not independent, so intervals are made from rounds."""


def phases_of(spans: StepSpans) -> tuple[str, ...]:
    """The phases that a step has rows for: its own in order of first entry, `other`, `step`."""
    return (*(phase.name for phase in spans.phases), OTHER, WHOLE)


def rows_of(spans: StepSpans, whole: CellKey) -> Iterator[tuple[CellKey, Sample]]:
    """(cell, sample) of every row; `whole` is the cell of the step. Rows of phases that are not nested add up to it."""
    for phase in spans.phases:
        yield _row(spans, whole, phase.name, phase.t_ns, phase.wall_ns, phase.span_ns, phase.calls)
    yield _row(spans, whole, OTHER, spans.t_ns, spans.other_ns, spans.other_span_ns, 1)
    yield _row(spans, whole, WHOLE, spans.t_ns, spans.wall_ns, spans.span_ns, 1, spans.reserved_bytes)
    if spans.memory is not None and spans.kind == UNPROFILED:
        yield (
            whole,
            Sample(
                cell=whole.id,
                repeat="alloc",
                round=spans.number // ROUND_STEPS,
                index=spans.number,
                step=spans.number,
                t_ns=spans.t_ns,
                allocs=spans.memory.allocs,
                alloc_bytes=spans.memory.alloc_bytes,
            ),
        )


def _row(
    spans: StepSpans,
    whole: CellKey,
    phase: str,
    t_ns: int,
    wall_ns: int,
    span_ns: int | None,
    calls: int,
    reserved_bytes: int | None = None,
) -> tuple[CellKey, Sample]:
    key = whole.sibling(phase=phase)
    return key, Sample(
        cell=key.id,
        repeat=spans.kind,
        round=spans.number // ROUND_STEPS,
        index=spans.number,
        step=spans.number,
        t_ns=t_ns,
        calls=calls,
        wall_ns=wall_ns,
        gpu_span_ns=span_ns,
        reserved_bytes=reserved_bytes,
    )
