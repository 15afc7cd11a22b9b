"""Finished steps as samples: one row a phase, one for what lies outside all phases, one for the step itself.

By column: a loop of 10 ms steps brings 24,000 rows from one write to the next, and a `Sample` each would hold the loop
up for a third of a second.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kdaprof.instruments.steps.recorder import UNPROFILED
from kdaprof.instruments.steps.spans import StepSpans
from kdaprof.runs.cells import CellKey
from kdaprof.runs.samples import sample_table
from kdaprof.timeline.loop_ranges import OTHER, WHOLE

ROUND_STEPS = 20
"""Steps of one round: samples of one round are not independent, so intervals are made from rounds."""


def tables_of(steps: Sequence[StepSpans], whole: CellKey) -> dict[CellKey, pa.Table]:
    """The rows of each cell, in the order of the steps; `whole` is the cell of the step.

    Rows of phases that are not nested add up to the step's, on both clocks.
    """
    columns: dict[str, _Columns] = {}
    for spans in steps:
        for phase in spans.phases:
            _of(columns, phase.name).add(spans, phase.t_ns, phase.wall_ns, phase.span_ns, phase.calls)
        _of(columns, OTHER).add(spans, spans.t_ns, spans.other_ns, spans.other_span_ns, 1)
        _of(columns, WHOLE).add(spans, spans.t_ns, spans.wall_ns, spans.span_ns, 1, spans.reserved_bytes)
        if spans.memory is not None and spans.kind == UNPROFILED:
            _of(columns, WHOLE).add_memory(spans, spans.memory.allocs, spans.memory.alloc_bytes)
    keys = {name: whole.sibling(phase=name) for name in columns}
    return {keys[name]: found.table(keys[name].id) for name, found in columns.items()}


def _of(columns: dict[str, _Columns], phase: str) -> _Columns:
    found = columns.get(phase)
    if found is None:
        found = columns[phase] = _Columns()
    return found


class _Columns:
    """Rows of one cell as they come in."""

    __slots__ = ("_allocs", "_bytes", "_calls", "_numbers", "_repeats", "_reserved", "_spans", "_t", "_walls")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._repeats: list[str] = []
        self._t: list[int] = []
        self._calls: list[int] = []
        self._walls: list[int | None] = []
        self._spans: list[int | None] = []
        self._reserved: list[int | None] = []
        self._allocs: list[int | None] = []
        self._bytes: list[int | None] = []

    def add(
        self, step: StepSpans, t_ns: int, wall_ns: int, span_ns: int | None, calls: int, reserved: int | None = None
    ) -> None:
        self._head(step, step.kind, t_ns, calls)
        self._walls.append(wall_ns)
        self._spans.append(span_ns)
        self._reserved.append(reserved)
        self._allocs.append(None)
        self._bytes.append(None)

    def add_memory(self, step: StepSpans, allocs: int, alloc_bytes: int) -> None:
        self._head(step, "alloc", step.t_ns, 1)
        self._walls.append(None)
        self._spans.append(None)
        self._reserved.append(None)
        self._allocs.append(allocs)
        self._bytes.append(alloc_bytes)

    def _head(self, step: StepSpans, repeat: str, t_ns: int, calls: int) -> None:
        self._numbers.append(step.number)
        self._repeats.append(repeat)
        self._t.append(t_ns)
        self._calls.append(calls)

    def table(self, cell: str) -> pa.Table:
        return sample_table(
            {
                "cell": [cell] * len(self._numbers),
                "repeat": self._repeats,
                "round": [number // ROUND_STEPS for number in self._numbers],
                "index": self._numbers,
                "step": self._numbers,
                "t_ns": self._t,
                "calls": self._calls,
                "wall_ns": self._walls,
                "gpu_span_ns": self._spans,
                "reserved_bytes": self._reserved,
                "allocs": self._allocs,
                "alloc_bytes": self._bytes,
            }
        )
