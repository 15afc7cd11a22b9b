"""Finished steps as samples: one row a phase, one for what lies outside all phases, one for the step itself.

By column: a loop of 10 ms steps brings 24,000 rows from one write to the next, and a `Sample` each would hold the loop
up for a third of a second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa

from kdaprof.instruments.steps.recorder import UNPROFILED
from kdaprof.instruments.steps.spans import StepSpans
from kdaprof.runs.cells import CellKey
from kdaprof.runs.samples import sample_table
from kdaprof.timeline.loop_ranges import OTHER, WHOLE

ROUND_STEPS = 20
"""Steps of one round: samples of one round are not independent, so intervals are made from rounds."""


# A row of a cell: its values in the order of `_COLUMNS`.
_Row = tuple[int, str, int, int, int | None, int | None, int | None, int | None, int | None]
_COLUMNS = (
    "index", "repeat", "t_ns", "calls", "wall_ns", "gpu_span_ns", "reserved_bytes", "allocs", "alloc_bytes",
)  # fmt: skip


def tables_of(steps: Sequence[StepSpans], whole: CellKey) -> dict[CellKey, pa.Table]:
    """The rows of each cell, in the order of the steps; `whole` is the cell of the step.

    Rows of phases that are not nested add up to the step's, on both clocks.
    """
    rows: defaultdict[str, list[_Row]] = defaultdict(list)
    for step in steps:
        n, kind, t_ns = step.number, step.kind, step.t_ns
        for phase in step.phases:
            own = (n, kind, phase.t_ns, phase.calls, phase.wall_ns, phase.span_ns, None, None, None)
            rows[phase.name].append(own)
        rows[OTHER].append((n, kind, t_ns, 1, step.other_ns, step.other_span_ns, None, None, None))
        rows[WHOLE].append((n, kind, t_ns, 1, step.wall_ns, step.span_ns, step.reserved_bytes, None, None))
        if step.memory is not None and kind == UNPROFILED:
            rows[WHOLE].append((n, "alloc", t_ns, 1, None, None, None, step.memory.allocs, step.memory.alloc_bytes))
    keys = {name: whole.sibling(phase=name) for name in rows}
    return {keys[name]: _table(keys[name].id, found) for name, found in rows.items()}


def _table(cell: str, rows: Sequence[_Row]) -> pa.Table:
    columns: dict[str, Sequence[object]] = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True))
    numbers = [row[0] for row in rows]
    rounds = [number // ROUND_STEPS for number in numbers]
    return sample_table({**columns, "cell": [cell] * len(rows), "round": rounds, "step": numbers})
