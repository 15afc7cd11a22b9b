"""Steps in fake time, and a step group around any step: what the cases of a step are tried on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kdaprof.instruments.fakes import FakeClock, FakeDevice
from kdaprof.probe.bench import Bench
from kdaprof.probe.benches import make_bench
from kdaprof.probe.group import GroupOutcome
from kdaprof.probe.plan import Effort
from kdaprof.probe.step import group as group_module
from kdaprof.probe.step.before import observed_step
from kdaprof.probe.step.group import StepGroup
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.workloads.step.case import Phase
from kdaprof.workloads.step.spec import HOST_MODEL, StepSpec
from kdaprof.workloads.step.watched import OpWatch

QUICK = Effort(rounds=3, rounds_most=1, samples=2, warmup=3, allocator=1, events=1, burst=2, util_seconds=0)
PHASES = ("fwd", "bwd")


def spec(path: str = "tensor", context: str = "plain", *, iters: int = 2, target: str | None = None) -> StepSpec:
    workload = "step" if target is None else "target"
    shape = make_shape("step", (2, 20, iters)) if target is None else make_shape("target", (1,))
    key = CellKey(workload, path, context, "eager", "step", shape, "float32")
    return StepSpec(key=key, device="cpu", seed=0, size=HOST_MODEL, target=target)


def measured(
    spec: StepSpec,
    *,
    bench: Bench | None = None,
    effort: Effort = QUICK,
    phases: Sequence[str] = (),
    modes: Sequence[str] = (),
) -> GroupOutcome:
    """The step with its phases and modes as a group of its own."""
    bench = bench or make_bench("cpu", util=False)
    keys = [spec.key, *(spec.sibling(phase=phase) for phase in phases), *(spec.sibling(mode=mode) for mode in modes)]
    observed = {key.id: observed_step(spec, key, bench) for key in keys}
    return StepGroup([spec], keys, observed, bench, effort, lambda _number, _live: None).run()


@dataclass
class PaperStep:
    """A step of two phases in fake time; `durations` are the device's, step by step, the last for ever after."""

    device: FakeDevice
    durations: Sequence[int] = (0,)
    host_ns: int = 0
    watch: OpWatch = field(default_factory=OpWatch)
    steps_done: int = 0

    def __post_init__(self) -> None:
        self.run: Callable[[], None] = self._run

    @property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(Phase(name, self._half) for name in PHASES)

    def prepare(self, index: int) -> None:
        """Nothing between two steps."""

    def _run(self) -> None:
        for phase in self.phases:
            phase.run()
        self.steps_done += 1

    def _half(self) -> None:
        whole = self.durations[min(self.steps_done, len(self.durations) - 1)]
        self.device.launch(self.host_ns // 2, whole // 2)


def on_paper(
    monkeypatch: pytest.MonkeyPatch, *, durations: Sequence[int] = (0,), host_ns: int = 0, **effort: Any
) -> GroupOutcome:
    """A whole group in fake time, on a device that is a GPU but for its figures."""
    clock = FakeClock()
    device = FakeDevice(clock)
    step = PaperStep(device, durations, host_ns)
    monkeypatch.setattr(group_module, "open_step", lambda _spec: step)
    monkeypatch.setattr(group_module, "history_of", lambda _device: None)
    bench = replace(make_bench("cpu", util=False), device=device, clock=clock)
    return measured(spec("none", target="my:step"), bench=bench, effort=replace(QUICK, **effort), phases=PHASES)
