"""The parent's side of the work that children do: profiled repeats, cold starts, the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kdaprof.probe.child import ChildSpec
from kdaprof.probe.cold import empty_caches
from kdaprof.probe.interpreted import ENVIRONMENT as INTERPRETED
from kdaprof.probe.lab import Lab
from kdaprof.probe.open_run import OpenRun
from kdaprof.probe.plan import Plan
from kdaprof.runs.cells import PEER_PATHS, CellKey
from kdaprof.runs.record import CellError, CellRecord, Observed
from kdaprof.workloads.op import CaseSpec

KEEP_TUNING = {"TRITON_CACHE_AUTOTUNING": "1"}
"""What Triton's autotuner found is kept on disk, where a later process reads it instead of tuning again."""
_START_S = 120.0
_COLD_S = 900.0
"""Autotuners take minutes on a first call; longer than this and the figure is missing, with that reason."""
_COLD_AGAIN_NS = 5_000_000_000


def profile(run: OpenRun, lab: Lab, plan: Plan, specs: Sequence[CaseSpec]) -> None:
    """Profiled repeats of a group's cells in one child, so that CUPTI never touches the timing process."""
    wanted = tuple(spec for spec in specs if run.cell(spec.key).status == "ok")
    if not wanted:
        return
    child = ChildSpec(task="profile", cases=wanted, effort=plan.effort, out=str(run.writer.path))
    timeout = _START_S + len(wanted) * 2 * plan.effort.cell_seconds
    env = KEEP_TUNING if any(spec.key.path in PEER_PATHS for spec in wanted) else {}
    result = lab.spawn(child, env=env, timeout_s=timeout)
    for spec in wanted:
        run.merge(spec.key, result, fact="gpu_busy_ns")


def within_cold_limit(
    run: OpenRun, lab: Lab, plan: Plan, specs: Sequence[CaseSpec], observed: dict[str, Observed]
) -> list[CaseSpec]:
    """`specs` without the cells of peers whose first call does not end within `--cold-limit`.

    A call that tunes its kernels cannot be stopped from inside, so it runs in a child first; what it tuned stays on
    disk for the other processes of the run. A cell that takes too long is a failed one that names what was skipped.
    """
    limit = plan.effort.cold_limit_s
    if limit is None or not plan.on_gpu:
        return list(specs)
    slow: dict[CellKey, CellError] = {}
    for spec in specs:
        if spec.key.path not in PEER_PATHS or spec.key.mode != "eager":
            continue
        child = ChildSpec(task="cold", cases=(spec,), effort=plan.effort, out=str(run.writer.path))
        result = lab.spawn(child, env=KEEP_TUNING, timeout_s=limit)
        if result.failure is not None and result.of(spec.key.id) is None:
            text = f"first call, limited by --cold-limit {limit:g}: {result.failure}; timing, graph, profile skipped"
            slow[spec.key] = CellError(type="FirstCallError", text=text)
    for spec in specs:
        error = slow.get(spec.key.sibling(mode="eager"))
        if error is not None:
            run.put_cell(CellRecord(key=spec.key, status="failed", error=error, observed=observed[spec.key.id]))
    return [spec for spec in specs if spec.key.sibling(mode="eager") not in slow]


def has_cold_start(key: CellKey) -> bool:
    """Eager forward and forward + backward; a cold backward alone would hide the forward that it waits for."""
    return key.mode == "eager" and key.phase != "bwd"


def cold_start(run: OpenRun, lab: Lab, plan: Plan, spec: CaseSpec) -> None:
    """First calls of a cell, each in a fresh process with empty caches; one is enough when it takes long."""
    for _ in range(plan.effort.cold_runs):
        child = ChildSpec(task="cold", cases=(spec,), effort=plan.effort, out=str(run.writer.path))
        with empty_caches() as env:
            result = lab.spawn(child, env=env, timeout_s=plan.effort.cold_limit_s or _COLD_S)
        seen = run.merge(spec.key, result, fact="cold_ns")
        if not seen.samples or any((sample.wall_ns or 0) > _COLD_AGAIN_NS for sample in seen.samples):
            return


def interpret(run: OpenRun, lab: Lab, plan: Plan, specs: Sequence[CaseSpec], observed: dict[str, Observed]) -> None:
    """Cells whose kernels Triton interprets: few samples, for they show that the kernels are right and no more."""
    effort = replace(plan.effort, rounds=1, rounds_most=1, samples=2, warmup=0, util_seconds=0)
    child = ChildSpec(task="interpret", cases=tuple(specs), effort=effort, out=str(run.writer.path))
    timeout = _START_S + len(specs) * 4 * effort.cell_seconds
    result = lab.spawn(child, env=INTERPRETED, timeout_s=timeout)
    for spec in specs:
        cell = result.of(spec.key.id)
        if cell is not None and cell.record is not None:
            run.put_cell(cell.record, cell.samples)
            continue
        unknown = CellError(type="WorkerError", text=result.failure or "the worker process left no result")
        error = cell.error if cell is not None and cell.error is not None else unknown
        seen = replace(observed[spec.key.id], interpreted=True)
        run.put_cell(CellRecord(key=spec.key, status="failed", error=error, observed=seen))
