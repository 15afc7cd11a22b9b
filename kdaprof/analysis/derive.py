"""From a stored run to its facts, evidence, stages and findings: the one way, pure and deterministic.

cells → own figures → evidence → figures that need another cell → rules → findings. Nothing is read, timed or drawn
at random here: the same run gives the same bytes of JSON on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kdaprof.analysis.celldata import CellData, gather
from kdaprof.analysis.evidence import PHASES_WITH_BACKWARD, judge_path
from kdaprof.analysis.facts import cross_facts, own_facts
from kdaprof.analysis.findings import find
from kdaprof.analysis.guards import judge_run
from kdaprof.analysis.recordings import kernels_of
from kdaprof.analysis.stages import stages_of
from kdaprof.analysis.step.proof import with_step_proofs
from kdaprof.analysis.view import CellView, KernelRow, RawRun
from kdaprof.runs.facts import Fact
from kdaprof.runs.results import CellResult, RunResults

BACKWARD_NAME = re.compile(r"(?i)(^|_)(bwd|bprop|backward)(_|$)|Backward")
MORE_THAN_FORWARD = 1.3
"""Without a name that says so, a forward + backward launches at least this many times what its forward does."""


def derive(raw: RawRun) -> RunResults:
    """Everything that follows from a run. Cells keep the order of the record."""
    return results_of(raw, judged_views(raw))


def results_of(raw: RawRun, views: Sequence[CellView]) -> RunResults:
    """What the judged cells of a run come to: their figures, proof and stages, and the findings that they allow."""
    cells = tuple(
        CellResult(
            id=view.cell.id,
            facts=dict(view.facts),
            evidence=view.evidence,
            stages=stages_of(view.kernels, _wall(view)),
        )
        for view in views
    )
    return RunResults(run=raw.record.run, cells=cells, findings=tuple(find(views)))


def judged_views(raw: RawRun) -> tuple[CellView, ...]:
    """Every cell with its figures, after the rules have spoken: what findings, and nothing else, are made from."""
    data = [gather(raw, cell) for cell in raw.record.cells]
    kernels = {d.cell.id: kernels_of(d.recording("profiled-cuda")) for d in data}
    own = {d.cell.id: own_facts(d) for d in data}
    views = _with_the_loops_evidence(tuple(_view(d, data, kernels, own) for d in data))
    views = with_step_proofs(data, views)
    judged = judge_run(views)
    return tuple(replace(view, facts=judged[view.cell.id]) for view in views)


def _view(
    d: CellData,
    every: Sequence[CellData],
    kernels: Mapping[str, tuple[KernelRow, ...]],
    own: Mapping[str, Mapping[str, Fact]],
) -> CellView:
    cells = {other.cell.key: other.cell for other in every}
    graph = cells.get(d.cell.key.sibling(mode="graph"))
    facts = cross_facts(d, own[d.cell.id], (graph, own[graph.id]) if graph is not None else None)
    forward = cells.get(d.cell.key.sibling(phase="fwd"))
    mine = kernels[d.cell.id]
    return CellView(
        run=d.run,
        cell=d.cell,
        samples=d.samples,
        warmup=d.warmup,
        kernels=mine,
        facts=facts,
        evidence=judge_path(d.cell, mine, _count(facts, "launches"), _count(facts, "allocs")),
        backward_kernels_seen=backward_seen(d.cell.key.phase, mine, kernels[forward.id] if forward else ()),
        extra=_extra(d),
    )


def _with_the_loops_evidence(views: tuple[CellView, ...]) -> tuple[CellView, ...]:
    """A phase of a running loop is proven by what its whole steps show: most phases never call the op.

    Whether the op's backward ran is the gate's to say: a model has backward kernels of its own.
    """
    proofs = {view.cell.key: view.evidence for view in views if view.cell.key.phase == "step"}

    def proven(view: CellView) -> CellView:
        seen, whole = view.cell.observed, proofs.get(view.cell.key.sibling(phase="step"))
        if seen is None or seen.borders != "loop" or whole is None:
            return view
        return replace(view, evidence=whole, backward_kernels_seen=None)

    return tuple(proven(view) for view in views)


def backward_seen(phase: str, kernels: Sequence[KernelRow], forward: Sequence[KernelRow]) -> bool | None:
    """Whether the device ran a backward pass in this phase; None when its kernels cannot tell.

    By name where kernels say so (ours, cuDNN's, flash attention's); in phase `bwd` any kernel is one; otherwise by
    comparison with the kernels of the same path's forward (not for a step, which launches more for other reasons).
    """
    if phase not in PHASES_WITH_BACKWARD or not kernels:
        return None
    if phase == "bwd" or any(BACKWARD_NAME.search(row.name) for row in kernels):
        return True
    if not forward or phase == "step":
        return None
    return sum(row.calls for row in kernels) >= MORE_THAN_FORWARD * sum(row.calls for row in forward)


def _count(facts: Mapping[str, Fact], name: str) -> int | None:
    fact = facts.get(name)
    return None if fact is None or fact.value is None else round(fact.value)


def _wall(view: CellView) -> float | None:
    wall = view.facts["wall_ns"].value
    return None if wall is None else float(wall)


def _extra(d: CellData) -> dict[str, float]:
    extra: dict[str, float] = {"spikes": len(d.warmup.spikes), "steady_samples": len(d.steady())}
    if d.warmup.steady_from is not None:
        cold = [s for s in d.of("unprofiled") if s.index < d.warmup.steady_from]
        extra["cold_samples"] = len(cold)
    first = next((s.wall_ns for s in d.of("unprofiled") if s.wall_ns is not None), None)
    if first is not None:
        extra["first_wall_ns"] = first
    return extra
