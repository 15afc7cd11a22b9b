"""Steps of one context and shape, from step 0 to samples: paths and modes interleaved, phases in steps of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from kdaprof.errors import UnavailableError
from kdaprof.instruments.compiles import CompileWatch
from kdaprof.instruments.graph_backend import private_pools
from kdaprof.instruments.timing import time_call
from kdaprof.probe.bench import Bench
from kdaprof.probe.failures import describe, status_of
from kdaprof.probe.group import GroupOutcome, RoundHook
from kdaprof.probe.plan import Effort
from kdaprof.probe.rounds import WARMUP_ROUND, event_repeats, mark_reserved, measure_rounds, one_sample, warm_up
from kdaprof.probe.series import Series
from kdaprof.probe.step.bordered import allocation_samples, bordered_sample, watched_sample
from kdaprof.probe.step.capture import GraphedStep, capture_step
from kdaprof.probe.step.check import check_step
from kdaprof.probe.step.memory import history_of, step_memory
from kdaprof.probe.step.slow import slow_steps
from kdaprof.probe.sustained import sustained
from kdaprof.probe.witness import observe_gate
from kdaprof.runs.cells import CellKey
from kdaprof.runs.record import CellError, CellRecord, Observed
from kdaprof.runs.util import UtilReading
from kdaprof.workloads.step.case import PhasedCase
from kdaprof.workloads.step.opening import open_step
from kdaprof.workloads.step.spec import COPY_PATH, StepSpec

WATCHED_A_ROUND = 2


@dataclass(slots=True)
class _Step:
    """One path's step while it is measured: its case, and the series of its parts."""

    spec: StepSpec
    case: PhasedCase
    whole: Series
    phases: dict[str, Series]
    lines: dict[str, Series]


class StepGroup:
    """Measures the steps of one context and shape. A step that fails is an error in its own cells."""

    def __init__(
        self,
        specs: Sequence[StepSpec],
        keys: Sequence[CellKey],
        observed: dict[str, Observed],
        bench: Bench,
        effort: Effort,
        hook: RoundHook,
    ) -> None:
        self._specs, self._keys = tuple(specs), tuple(keys)
        self._bench, self._effort, self._hook = bench, effort, hook
        self._records = {key.id: CellRecord(key=key, status="ok", observed=observed[key.id]) for key in keys}
        self._steps: dict[CellKey, _Step] = {}
        self._series: list[Series] = []
        self._modes: dict[CellKey, GraphedStep] = {}

    def run(self) -> GroupOutcome:
        """Everything that this process measures of the group."""
        watch = CompileWatch(self._bench.clock)
        with watch.watching():
            notes = self._timed_part()
        for step in self._steps.values():
            self._note((step.whole.key,), slow_steps=slow_steps(step.whole.samples, watch.events))
        util: list[UtilReading] = []
        alive = [s for s in self._steps.values() if self._records[s.whole.key.id].status == "ok"]
        for step in alive:
            self._side_figures(step, util)
        for step in alive:  # last: it empties the pool, which would be in the other steps' figures
            if step.phases:  # a sweep's steps are many, and its question is another
                self._beside(step.whole.key, ("memory",), partial(self._memory, step))
        for key, case in self._modes.items():
            self._input_copies(key, case)
        samples = {series.key.id: tuple(series.samples) for series in self._everything() if series.samples}
        cells = tuple(self._records[key.id] for key in self._keys)
        return GroupOutcome(cells=cells, samples=samples, util=tuple(util), notes=notes)

    def _timed_part(self) -> tuple[str, ...]:
        """Every step from step 0 on, up to the last interleaved round; notes on it."""
        for spec in self._specs:
            self._attempt(self._cells_of(spec), partial(self._begin, spec))
            for key in self._cells_of(spec, modes=True):
                self._attempt((key,), partial(self._begin_mode, spec, key))
        live = list(self._series)
        return measure_rounds(
            live,
            self._bench,
            self._effort,
            after_round=lambda number: self._hook(number, self._everything()),
            on_failure=lambda series, error: self._fail((series.key,), error),
            beside=self._beside_round,
        )

    # ---------------------------------------------------------------- beginnings

    def _begin(self, spec: StepSpec) -> None:
        case = open_step(spec)
        series = Series(spec.key, case, step=lambda: case.steps_done - 1)
        # Step 0 is timed like every other step: nothing of this process's step ran before it.
        gate = observe_gate(lambda: one_sample(series, self._bench, WARMUP_ROUND))
        cells = self._cells_of(spec)
        self._note(cells[:1], gate=gate if spec.key.path != COPY_PATH else None)
        if spec.target is None and spec.key.path != COPY_PATH:
            check = check_step(spec)
            self._note(cells, check=check)
        parts = {key.phase: Series(key, case, step=series.step) for key in cells if key.phase != "step"}
        step = _Step(
            spec=spec,
            case=case,
            whole=series,
            phases={name: one for name, one in parts.items() if "." not in name},
            lines={name: one for name, one in parts.items() if "." in name},
        )
        warm_up(series, self._bench, self._effort)
        if step.phases:
            bordered_sample(step.phases, case, series.next_input(), self._bench, WARMUP_ROUND)
        self._steps[spec.key] = step
        self._series.append(series)

    def _begin_mode(self, spec: StepSpec, key: CellKey) -> None:
        if self._bench.device.kind != "cuda":
            raise UnavailableError("CUDA Graphs need a CUDA device")
        if spec.target is not None:
            raise UnavailableError("a target's step is not captured: its state is its own")
        if spec.key not in self._steps:
            raise UnavailableError("the eager step that would be captured did not run")
        made = []
        gate = observe_gate(lambda: made.append(capture_step(spec, key.mode, self._private_pools)))
        case, taken = made[0].case, made[0].capture
        self._note((key,), capture=taken, check=taken.check, gate=gate if spec.key.path != COPY_PATH else None)
        if case is None:
            text = f"capture failed at {taken.operation or 'an operation'} ({taken.where}): {taken.error}"
            self._set((key,), status="failed", error=CellError(type="CaptureFailure", text=text[:500]))
            return
        series = Series(key, case, step=lambda: series.calls - 1)
        warm_up(series, self._bench, self._effort)
        self._modes[key] = case
        self._series.append(series)

    def _private_pools(self) -> int:
        return private_pools(self._bench.device.index or 0)

    # ---------------------------------------------------------------- rounds and what stands beside them

    def _beside_round(self, series: Series, number: int) -> None:
        step = self._steps.get(series.key)
        if step is None:
            return
        if step.phases:
            for _ in range(max(2, self._effort.samples // 2)):
                bordered_sample(step.phases, step.case, series.next_input(), self._bench, number)
            for one in step.phases.values():
                mark_reserved(one, self._bench)
        if step.lines:
            for _ in range(WATCHED_A_ROUND):
                watched_sample(step.lines, step.case, series.next_input(), self._bench, number)

    def _side_figures(self, step: _Step, util: list[UtilReading]) -> None:
        bench, effort, key = self._bench, self._effort, step.whole.key
        self._beside(key, ("gpu_span_ns",), lambda: event_repeats(step.whole, bench, effort))
        self._beside(key, ("allocs", "alloc_bytes", "peak_bytes"), lambda: self._allocations(step))
        self._beside(key, ("util_mean", "util_idle_share"), lambda: util.extend(sustained(step.whole, bench, effort)))

    def _allocations(self, step: _Step) -> None:
        if self._bench.allocator.missing is not None:
            return
        for _ in range(self._effort.allocator):
            allocation_samples(step.whole, step.phases, step.lines, step.case, self._bench)

    def _memory(self, step: _Step) -> None:
        history = history_of(self._bench.device)
        if history is not None:
            self._note((step.whole.key,), memory=step_memory(step.whole, self._bench, history))

    def _input_copies(self, key: CellKey, case: GraphedStep) -> None:
        series = next(one for one in self._series if one.key == key)
        for number in range(max(self._effort.allocator, 5)):
            timing = time_call(partial(case.prepare, number), self._bench.device, self._bench.clock)
            series.add("input-copy", 0, timing.t_ns, host_ns=timing.host_ns, wall_ns=timing.wall_ns)

    def _everything(self) -> list[Series]:
        parts = [part for step in self._steps.values() for part in (*step.phases.values(), *step.lines.values())]
        return [*self._series, *(part for part in parts if part.samples)]

    # ---------------------------------------------------------------- records

    def _cells_of(self, spec: StepSpec, *, modes: bool = False) -> tuple[CellKey, ...]:
        """The eager cells of a step, the whole first; or its cells in other modes."""
        mine = [key for key in self._keys if key.sibling(phase="step", mode="eager") == spec.key]
        return tuple(key for key in mine if (key.mode != "eager") == modes)

    def _attempt(self, keys: Sequence[CellKey], work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._fail(keys, error)
            if self._bench.device.kind == "cuda":
                torch.cuda.empty_cache()

    def _fail(self, keys: Sequence[CellKey], error: Exception) -> None:
        whole = {key for key in keys if key.phase == "step" and key.mode == "eager"}
        fallen = [key for key in self._keys if key in keys or key.sibling(phase="step") in whole]
        self._set(fallen, status=status_of(error), error=describe(error))

    def _set(self, keys: Sequence[CellKey], **changes: object) -> None:
        for key in keys:
            self._records[key.id] = replace(self._records[key.id], **changes)  # type: ignore[arg-type]

    def _note(self, keys: Sequence[CellKey], **changes: object) -> None:
        for key in keys:
            seen = self._records[key.id].observed
            assert seen is not None
            self._set((key,), observed=replace(seen, **changes))  # type: ignore[arg-type]

    def _beside(self, key: CellKey, figures: Sequence[str], work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            told, seen = describe(error), self._records[key.id].observed
            assert seen is not None
            self._note((key,), missing=seen.missing | dict.fromkeys(figures, f"{told.type}: {told.text}"))
