"""A profiled step as the analysis reads it: every phase and every call of the op is found again, in its step."""

from __future__ import annotations

from pathlib import Path

import torch

from kdaprof.analysis.trace.loop import entries_of
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.device import CpuDevice
from kdaprof.instruments.kineto import record
from kdaprof.probe.step.bordered import run_bordered
from kdaprof.probe.step.profiled import Recorder
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.timeline import kineto
from kdaprof.workloads.step.spec import HOST_MODEL, OP_LINES, PHASES, StepSpec
from kdaprof.workloads.step.training import StepCase

ITERS = 3


def spec(path: str = "tensor", context: str = "plain") -> StepSpec:
    key = CellKey("step", path, context, "eager", "step", make_shape("step", (2, 20, ITERS)), "float32")
    return StepSpec(key=key, device="cpu", seed=0, size=HOST_MODEL)


def test_phases_and_calls_stand_in_the_trace(tmp_path: Path) -> None:
    case, device, clock = StepCase(spec()), CpuDevice(), MonotonicClock()
    recorder = Recorder(case, device, clock)
    out = tmp_path / "trace.json.gz"
    recording = record(
        recorder.run,
        2,
        mode="full",
        device=device,
        clock=clock,
        out_path=out,
        warmup=1,
        stage=case.prepare,
        inner=recorder.ranges,
    )
    timeline = kineto.read(recording.path)
    for phase in PHASES:
        assert len(entries_of(timeline, phase)) == 2, phase
    for line in OP_LINES:
        entries = entries_of(timeline, line)
        assert len(entries) == 2 * ITERS, line
        phase = line.partition(".")[0]
        windows = {e.step: e.window for e in entries_of(timeline, phase)}
        assert all(windows[e.step][0] <= e.window[0] < e.window[1] <= windows[e.step][1] for e in entries), line
    steps = entries_of(timeline, "step")
    inside = [
        sum(e.window[1] - e.window[0] for p in PHASES for e in entries_of(timeline, p) if e.step == s.step)
        for s in steps
    ]
    for whole, parts in zip(steps, inside, strict=True):
        length = whole.window[1] - whole.window[0]
        assert abs(parts - length) <= 0.01 * length


def test_a_watched_or_bordered_step_is_the_same_step() -> None:
    plain, cut = StepCase(spec()), StepCase(spec())
    marks: list[tuple[str, bool]] = []
    cut.watch.mark = lambda line, begins: marks.append((line, begins))
    for index in range(3):
        plain.prepare(index)
        plain.run()
        cut.prepare(index)
        run_bordered(cut, CpuDevice(), MonotonicClock())
    assert plain.steps_done == cut.steps_done == 3
    assert marks == 3 * [(line, edge) for line in OP_LINES for _ in range(ITERS) for edge in (True, False)]
    for mine, theirs in zip(plain.weights(), cut.weights(), strict=True):
        assert torch.equal(mine, theirs)
