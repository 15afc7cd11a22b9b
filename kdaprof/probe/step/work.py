"""The parent's side of a step probe: a group of cells measured here, its recordings and cold steps in children."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kdaprof.probe.child import ChildCell, ChildResult, ChildSpec, StepTask
from kdaprof.probe.cold import empty_caches
from kdaprof.probe.group import RoundHook
from kdaprof.probe.interpreted import ENVIRONMENT as INTERPRETED
from kdaprof.probe.lab import Lab
from kdaprof.probe.open_run import OpenRun
from kdaprof.probe.plan import Group
from kdaprof.probe.step.before import observed_step
from kdaprof.probe.step.group import StepGroup
from kdaprof.probe.step.plan import StepPlan
from kdaprof.runs.cells import CellKey
from kdaprof.runs.record import CellError, CellRecord, Observed
from kdaprof.workloads.step.spec import COPY_PATH, StepSpec

_CHILD_S = 300.0
_COLD_S = 900.0


class StepWork:
    """What a session does with a group of step cells."""

    def __init__(self, run: OpenRun, lab: Lab, plan: StepPlan, hook: RoundHook) -> None:
        self._run, self._lab, self._plan, self._hook = run, lab, plan, hook
        self._left = sum(1 for _ in plan.groups())
        self._unprofiled: list[CellKey] = []

    def steps(self, group: Group) -> int:
        """How many lines of progress a group takes."""
        return 1 + self._plan.on_gpu + len(self._cold(group))

    def measure(self, group: Group) -> None:
        """Everything of one group: timing here, then what needs processes of its own."""
        plan, bench = self._plan, self._lab.bench
        specs = tuple(dict.fromkeys(plan.spec(key) for key in group.keys))
        observed = {key.id: observed_step(plan.spec(key), key, bench) for key in group.keys}
        self._lab.progress.advance(f"{group.name}: steps on {', '.join(plan.paths)}")
        interpreted = [spec for spec in specs if spec.key.path == "fused" and not plan.on_gpu]
        here = [spec for spec in specs if spec not in interpreted]
        if here:
            keys = [key for key in group.keys if plan.spec(key) in here]
            outcome = StepGroup(here, keys, observed, bench, plan.effort, self._hook).run()
            for cell in outcome.cells:
                self._run.put_cell(cell, outcome.samples.get(cell.id, ()))
            self._run.put_util(outcome.util)
            self._run.note(*outcome.notes)
        for spec in interpreted:
            self._interpret(spec, [key for key in group.keys if plan.spec(key) == spec], observed)
        if plan.on_gpu:
            self._lab.progress.advance(f"{group.name}: profiled steps, in a process of their own")
            self._profile_when_due(group)
        for spec in self._cold(group):
            self._lab.progress.advance(f"{spec.key.path}: cold first step, empty caches")
            self._cold_step(spec)

    def _cold(self, group: Group) -> tuple[StepSpec, ...]:
        if not (self._plan.cold and self._plan.on_gpu):
            return ()
        specs = dict.fromkeys(self._plan.spec(key) for key in group.keys)
        return tuple(spec for spec in specs if spec.key.path != COPY_PATH and not self._plan.is_half(spec.key))

    def _profile_when_due(self, group: Group) -> None:
        """A group's steps in one child; those of a sweep in one child at its end, since each takes seconds to start."""
        self._left -= 1
        self._unprofiled += [key for key in group.keys if self._is_ok(key)]
        if not self._plan.parts and self._left:
            return
        mine, self._unprofiled = self._unprofiled, []
        steps = dict.fromkeys((self._plan.spec(key), key.mode) for key in mine if key.phase == "step")
        if not steps:
            return
        tasks = tuple(StepTask(spec=spec, mode=mode, brief=self._plan.is_half(spec.key)) for spec, mode in steps)
        out = str(self._run.writer.path)
        child = ChildSpec(task="profile", cases=(), effort=self._plan.effort, out=out, steps=tasks)
        result = self._lab.spawn(child, env={}, timeout_s=_CHILD_S + 60 * len(tasks))
        for key in mine:
            self._merge(key, result)

    def _merge(self, key: CellKey, result: ChildResult) -> None:
        """A phase shares the recording of its step; the walls of profiled repeats are the step's alone."""
        whole = key.sibling(phase="step")
        if key == whole:
            self._run.merge(key, result, fact="gpu_busy_ns")
            return
        seen = result.of(whole.id)
        shared = () if seen is None else (replace(seen, cell=key.id, samples=()),)
        self._run.merge(key, replace(result, cells=shared), fact="gpu_busy_ns")

    def _cold_step(self, spec: StepSpec) -> None:
        if not self._is_ok(spec.key):
            return
        task = StepTask(spec=spec, mode="eager")
        with empty_caches() as env:
            child = ChildSpec(task="cold", cases=(), effort=self._plan.effort, out="", steps=(task,))
            result = self._lab.spawn(child, env=env, timeout_s=_COLD_S)
        self._run.merge(spec.key, result, fact="cold_ns")

    def _interpret(self, spec: StepSpec, keys: Sequence[CellKey], observed: dict[str, Observed]) -> None:
        effort = replace(self._plan.effort, rounds=1, rounds_most=1, samples=1, warmup=0, util_seconds=0)
        task = StepTask(spec=spec, mode="eager", keys=tuple(keys))
        child = ChildSpec(task="interpret", cases=(), effort=effort, out="", steps=(task,))
        result = self._lab.spawn(child, env=INTERPRETED, timeout_s=_CHILD_S)
        for key in keys:
            cell = result.of(key.id) or ChildCell(cell=key.id)
            if cell.record is not None:
                self._run.put_cell(cell.record, cell.samples)
                continue
            whole = result.of(spec.key.id)
            unknown = CellError(type="WorkerError", text=result.failure or "the worker process left no result")
            error = cell.error or (whole.error if whole is not None else None) or unknown
            seen = replace(observed[key.id], interpreted=True)
            self._run.put_cell(CellRecord(key=key, status="failed", error=error, observed=seen))

    def _is_ok(self, key: CellKey) -> bool:
        return self._run.cell(key).status == "ok"
