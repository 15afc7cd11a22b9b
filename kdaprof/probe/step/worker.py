"""The child's side of steps: profiled repeats, cold first steps, and steps whose kernels Triton interprets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from kdaprof.instruments.allocator import allocator_of, delta
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.compiles import CompileWatch
from kdaprof.instruments.cuda_device import open_device
from kdaprof.instruments.timing import time_call
from kdaprof.probe.benches import make_bench
from kdaprof.probe.child import ChildCell, ChildSpec, StepTask
from kdaprof.probe.failures import describe
from kdaprof.probe.series import Series
from kdaprof.probe.step.before import observed_step
from kdaprof.probe.step.group import StepGroup
from kdaprof.probe.step.profiled import profile_step
from kdaprof.runs.compiles import SlowStep
from kdaprof.workloads.step.opening import open_step


def work_through(spec: ChildSpec) -> Iterator[tuple[ChildCell, ...]]:
    """The cells of each step in turn; a step that fails is an error in its own place."""
    for task in spec.steps:
        try:
            yield _interpret(task, spec) if spec.task == "interpret" else (_one(task, spec),)
        except Exception as error:
            yield (ChildCell(cell=task.spec.key.sibling(mode=task.mode).id, error=describe(error)),)


def _one(task: StepTask, spec: ChildSpec) -> ChildCell:
    return profile_step(task, spec) if spec.task == "profile" else _cold(task)


def _cold(task: StepTask) -> ChildCell:
    """The process's first step. Weights and the CUDA context exist before; kernels, libraries and caches do not."""
    device, clock = open_device(task.spec.device), MonotonicClock()
    case = open_step(task.spec)
    series = Series(task.spec.key, case)
    case.prepare(0)
    watch, allocator = CompileWatch(clock), allocator_of(device)
    before = allocator.read()

    def first_step() -> None:
        if device.kind == "cuda":
            with watch.around("library", "cuBLAS handle"):  # the step's first product would make it
                torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]
        case.run()

    with watch.watching():
        timing = time_call(first_step, device, clock)
    grown = delta(before, allocator.read())
    series.add("cold", 0, timing.t_ns, step=0, host_ns=timing.host_ns, wall_ns=timing.wall_ns)
    first = SlowStep(
        fresh=True,
        index=0,
        start_ns=timing.t_ns,
        wall_ns=timing.wall_ns,
        events=tuple(watch.events),
        driver_allocs=grown.driver_allocs if grown is not None else None,
        reserved_growth_bytes=grown.reserved_growth_bytes if grown is not None else None,
    )
    return ChildCell(cell=task.spec.key.id, samples=tuple(series.samples), slow_steps=(first,))


def _interpret(task: StepTask, spec: ChildSpec) -> tuple[ChildCell, ...]:
    bench = make_bench(task.spec.device, util=False)
    keys = task.keys
    observed = {key.id: replace(observed_step(task.spec, key, bench), interpreted=True) for key in keys}
    outcome = StepGroup((task.spec,), keys, observed, bench, spec.effort, lambda _number, _live: None).run()
    return tuple(
        ChildCell(cell=c.id, samples=outcome.samples.get(c.id, ()), record=c, error=c.error) for c in outcome.cells
    )
