"""One probe from plan to run directory: everything is on disk the moment it is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from kdaprof import __version__
from kdaprof.instruments.clock import clock_pair
from kdaprof.instruments.cooldown import CoolDown
from kdaprof.instruments.nvtx import in_range
from kdaprof.probe import children
from kdaprof.probe.ceilings import measure_ceilings
from kdaprof.probe.costs import own_costs
from kdaprof.probe.declared import input_sets, observed_before, set_bytes
from kdaprof.probe.failures import describe
from kdaprof.probe.group import GroupMeasurement
from kdaprof.probe.lab import Lab
from kdaprof.probe.open_run import OpenRun
from kdaprof.probe.plan import Group, Plan
from kdaprof.probe.series import Series
from kdaprof.probe.step.plan import StepPlan
from kdaprof.probe.step.work import StepWork
from kdaprof.runs.cells import CellKey
from kdaprof.runs.conditions import Conditions, ConditionsSnapshot
from kdaprof.runs.environment import anonymised
from kdaprof.runs.record import CellError, CellRecord, RunRecord
from kdaprof.runs.store import open_target
from kdaprof.workloads.op import CaseSpec

T = TypeVar("T")
_PENDING = CellError(type="NotMeasured", text="the run ended before this cell was measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOutcome:
    """Where the run lies and how it ended."""

    path: Path
    record: RunRecord
    interrupted: bool


def run_probe(plan: Plan, lab: Lab) -> ProbeOutcome:
    """Measure every cell of `plan` into its run directory.

    Ctrl-C (KeyboardInterrupt) ends the measuring, keeps every finished cell and marks the run partial.
    Errors: UsageError or TargetError, before anything is measured, when the target cannot take a run.
    """
    session = _Session(plan, lab)
    interrupted = False
    try:
        session.measure()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        lab.progress.close()
    session.finish(complete=not interrupted)
    return ProbeOutcome(path=plan.out, record=session.run.record, interrupted=interrupted)


class _Session:
    def __init__(self, plan: Plan, lab: Lab) -> None:
        self.plan, self.lab, self.bench = plan, lab, lab.bench
        writer = open_target(plan.out, force=plan.force)
        secrets = lab.secrets() if plan.anonymous else None
        self._during: list[ConditionsSnapshot] = []
        self._cool_down = CoolDown(self.bench.sensor.value, self.bench.clock)
        pair = clock_pair(self.bench.clock)
        environment = lab.environment()
        record = RunRecord(
            run=plan.run,
            tool=f"kdaprof {__version__}",
            command=plan.command,
            started_unix_ns=pair.unix_ns,
            started_monotonic_ns=pair.monotonic_ns,
            complete=False,
            environment=anonymised(environment, secrets) if secrets else environment,
            conditions=Conditions(None, (), None),
            cells=tuple(CellRecord(key=key, status="skipped", error=_PENDING) for key in plan.cells()),
        )
        self.run = OpenRun(record, writer, secrets)

    def measure(self) -> None:
        """Every group of cells, after what concerns the whole machine."""
        groups = tuple(self.plan.groups())
        count, work = self._steps, self._group
        if isinstance(self.plan, StepPlan):
            steps = StepWork(self.run, self.lab, self.plan, self._after_round)
            count, work = steps.steps, steps.measure
        self.lab.progress.start(1 + sum(count(group) for group in groups))
        self.run.update(conditions=replace(self.run.record.conditions, before=self.lab.snapshot(True)))
        self.lab.progress.advance("ceilings of the card, own costs")
        bench = self.bench
        self.run.update(ceilings=self._tried("ceilings", lambda: measure_ceilings(bench.device, bench.clock)))
        self.run.update(overhead=self._tried("own costs", lambda: own_costs(bench)))
        with in_range(bench.ranges, self.run.record.run, "run"):
            for group in groups:
                with in_range(bench.ranges, group.name, "phase"):
                    work(group)

    def finish(self, *, complete: bool) -> None:
        """Close the record: conditions after, end times, partial or complete."""
        pair = clock_pair(self.bench.clock)
        before = self.run.record.conditions.before
        self.run.update(
            conditions=Conditions(before, tuple(self._during), self.lab.snapshot(complete)),
            complete=complete,
            ended_unix_ns=pair.unix_ns,
            ended_monotonic_ns=pair.monotonic_ns,
        )

    def _steps(self, group: Group) -> int:
        """How many lines of progress a group takes."""
        return 1 + self.plan.on_gpu + len(self._cold_cells(group.keys))

    def _cold_cells(self, keys: Sequence[CellKey]) -> tuple[CellKey, ...]:
        asked = self.plan.cold and self.plan.on_gpu
        return tuple(key for key in keys if asked and children.has_cold_start(key))

    def _tried(self, what: str, measure: Callable[[], tuple[T, ...]]) -> tuple[T, ...]:
        """What an instrument of the whole run measured; one that fails (no memory left on the card) leaves a note."""
        try:
            return measure()
        except Exception as error:
            told = describe(error)
            self.run.note(f"{what} not measured: {told.type}: {told.text}")
            return ()

    def _group(self, group: Group) -> None:
        self._cool_down = CoolDown(self.bench.sensor.value, self.bench.clock)
        specs = tuple(self._spec(key) for key in group.keys)
        observed = {s.key.id: observed_before(s, self.bench, cache=self.plan.cache) for s in specs}
        interpreted = [spec for spec in specs if self._needs_interpreter(spec)]
        here = [spec for spec in specs if spec not in interpreted]
        here = children.within_cold_limit(self.run, self.lab, self.plan, here, observed)
        self.lab.progress.advance(f"{group.name}: timing {', '.join(self.plan.paths)}")
        if here:
            outcome = GroupMeasurement(here, observed, self.bench, self.plan.effort, self._after_round).run()
            for cell in outcome.cells:
                self.run.put_cell(cell, outcome.samples.get(cell.id, ()))
            self.run.put_util(outcome.util)
            self.run.note(*outcome.notes)
        if interpreted:
            children.interpret(self.run, self.lab, self.plan, interpreted, observed)
        if self.plan.on_gpu:
            self.lab.progress.advance(f"{group.name}: profiled repeats, in a process of their own")
            children.profile(self.run, self.lab, self.plan, specs)
        for spec in specs:
            if spec.key in self._cold_cells(group.keys):
                self.lab.progress.advance(f"{spec.key.path} {spec.key.phase}: cold start, empty caches")
                if self.run.cell(spec.key).status == "ok":
                    children.cold_start(self.run, self.lab, self.plan, spec)
            elif self.plan.cold and not self.plan.on_gpu and children.has_cold_start(spec.key):
                self.run.put_missing(spec.key, "cold_ns", "no GPU: a cold start is the compiling of GPU kernels")

    def _spec(self, key: CellKey) -> CaseSpec:
        count = input_sets(set_bytes(key), self.bench.device, cache=self.plan.cache)
        return CaseSpec(key=key, device=self.plan.device, seed=self.plan.seed, input_sets=count)

    def _needs_interpreter(self, spec: CaseSpec) -> bool:
        return spec.key.path == "fused" and not self.plan.on_gpu and spec.key.mode == "eager"

    def _after_round(self, number: int, live: Sequence[Series]) -> None:
        """Samples reach the disk each round; the conditions are looked at, lightly; a hot card gets a pause."""
        for series in live:
            self.run.writer.put_samples(series.key, series.samples)
        self._during.append(self.lab.snapshot(False))
        clocks = [s.sm_clock_hz for series in live for s in series.samples if s.round == number and s.sm_clock_hz]
        paused = self._cool_down.after_round(clocks)
        if paused is not None:
            self.run.note(f"after round {number + 1}: {paused}")
