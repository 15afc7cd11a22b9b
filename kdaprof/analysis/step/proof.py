"""Which path a training step took: the witnesses look at the op's own calls inside it, not at the whole step.

A step holds matmuls, norms and an optimiser beside the op. Judged by all of its kernels, a fused op that takes a
twentieth of the GPU's time would look like tensor operations. So the recording's op lines are judged, against what
was declared for them, and what they show holds for every phase and mode of the same step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kdaprof.analysis.celldata import CellData
from kdaprof.analysis.evidence import judge_path
from kdaprof.analysis.recordings import Recording, kernels_of, launches_of
from kdaprof.analysis.stats import median
from kdaprof.analysis.view import CellView, KernelRow
from kdaprof.runs.cells import CellKey
from kdaprof.runs.record import CellRecord
from kdaprof.runs.results import Evidence, Verdict, Witness

BACKWARD_LINE = "bwd.kda"
COPY_PATH = "copy"
_COPY = re.compile(r"(?i)memcpy|memset|copy")


def with_step_proofs(data: Sequence[CellData], views: tuple[CellView, ...]) -> tuple[CellView, ...]:
    """The views, those of a probed step with the evidence that its op's calls give."""
    wholes = {d.cell.key: d for d in data if _is_whole(d.cell)}
    judged = {key: _judge(d) for key, d in wholes.items()}

    def proven(view: CellView) -> CellView:
        whole = view.cell.key.sibling(phase="step", mode="eager")
        if whole not in wholes or view.cell.observed is None:
            return view
        evidence, backward, kernels = judged[whole]
        if view.cell.key.mode != "eager" and whole.path != COPY_PATH:
            evidence = _in_mode(view, kernels)
        return replace(view, evidence=evidence, backward_kernels_seen=backward)

    return tuple(proven(view) for view in views)


def _is_whole(cell: CellRecord) -> bool:
    seen, key = cell.observed, cell.key
    return (
        key.workload == "step"
        and key.phase == "step"
        and key.mode == "eager"
        and (seen is not None and seen.borders == "call")
    )


def _judge(d: CellData) -> tuple[Evidence, bool | None, tuple[KernelRow, ...]]:
    kernels = _together(kernels_of(recording) for recording in d.op_calls.values())
    backward = None
    if kernels and d.cell.key.path != COPY_PATH:
        backward = bool(kernels_of(d.op_calls[BACKWARD_LINE]))
    if d.cell.key.path == COPY_PATH:
        return _judge_copy(d, kernels), backward, kernels
    return judge_path(d.cell, kernels, _launches(d.op_calls), None), backward, kernels


def _launches(calls: Mapping[str, Recording]) -> int | None:
    counts = [launches_of(recording) for recording in calls.values()]
    per_line = [median(float(count) for _, count in line) for line in counts if line]
    return round(sum(per_line)) if per_line else None


def _in_mode(view: CellView, kernels: Sequence[KernelRow]) -> Evidence:
    """A captured step by the gate's word at its capture, and by the kernels that its eager op calls ran."""
    names = {row.name for row in kernels}
    seen = view.cell.observed
    assert seen is not None
    cell = replace(view.cell, observed=replace(seen, declared=None))
    return judge_path(cell, tuple(row for row in view.kernels if row.name in names), None, None)


def _judge_copy(d: CellData, kernels: Sequence[KernelRow]) -> Evidence:
    """An ablated op: the gate must not have been asked, and the op's place must hold nothing but copies."""
    gate = Witness(name="gate", says=COPY_PATH, detail="the op was replaced: the gate was not asked")
    others = [row.name for row in kernels if not _COPY.search(row.name)]
    if not kernels:
        device = Witness(name="kernels", says=None, detail="no kernel of the op's place was recorded")
    elif others:
        device = Witness(name="kernels", says=f"not {COPY_PATH}", detail=f"in the op's place ran {others[0][:60]}")
    else:
        device = Witness(name="kernels", says=COPY_PATH, detail=f"{sum(row.calls for row in kernels)} copies")
    counts = Witness(name="counts", says=None, detail="no counts were declared before the run")
    verdict: Verdict = "contradicted" if others else "partial" if kernels else "gate-only"
    return Evidence(verdict=verdict, expected=COPY_PATH, witnesses=(gate, device, counts))


def _together(tables: Iterable[tuple[KernelRow, ...]]) -> tuple[KernelRow, ...]:
    found: dict[str, KernelRow] = {}
    for row in (row for table in tables for row in table):
        old = found.get(row.name, KernelRow(name=row.name, calls=0, busy_ns=0))
        found[row.name] = KernelRow(name=row.name, calls=old.calls + row.calls, busy_ns=old.busy_ns + row.busy_ns)
    return tuple(sorted(found.values(), key=lambda row: (-row.busy_ns, row.name)))


def same_step(key: CellKey) -> CellKey:
    """The cell of the whole step, eager, that a cell is part of."""
    return key.sibling(phase="step", mode="eager")
