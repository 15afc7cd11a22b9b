"""Failures that others have met in measuring steps, each tried on a step of ours."""

from __future__ import annotations

import gc
import random
from dataclasses import replace

import pytest
import torch
from paper_steps import PHASES, QUICK, measured, on_paper, spec

from kdaprof.analysis.step.cold import drift_of
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.device import CpuDevice
from kdaprof.instruments.fakes import FakeDevice
from kdaprof.probe.benches import make_bench
from kdaprof.probe.group import GroupOutcome
from kdaprof.probe.step import group as group_module
from kdaprof.probe.step.bordered import run_bordered
from kdaprof.probe.step.capture import GraphedStep, Made, check_replays
from kdaprof.probe.step.plan import STEP_CONTEXTS
from kdaprof.report.step import PHASES_LEGEND
from kdaprof.runs.record import Capture, CellRecord
from kdaprof.runs.util import UtilReading
from kdaprof.workloads.step.case import Outputs, Phase
from kdaprof.workloads.step.training import StepCase

MS = 1_000_000


def whole(outcome: GroupOutcome) -> CellRecord:
    return next(cell for cell in outcome.cells if cell.key.phase == "step" and cell.key.mode == "eager")


def walls(outcome: GroupOutcome, cell: CellRecord) -> list[int | None]:
    return [s.wall_ns for s in outcome.samples[cell.id] if s.repeat == "unprofiled" and s.round >= 0]


# ---------------------------------------------------------------- the path in every context


@pytest.mark.parametrize("context", [c for c in STEP_CONTEXTS if c != "compile"])
def test_the_path_is_the_same_in_every_context_that_trains(context: str) -> None:
    cell = whole(measured(spec("tensor", context), effort=replace(QUICK, rounds=1, samples=1, warmup=0)))
    assert cell.status == "ok", cell.error
    assert cell.observed is not None
    assert cell.observed.gate is not None
    assert cell.observed.gate.chosen == "tensor"
    assert set(cell.observed.gate.forward) == {"tensor"}
    assert set(cell.observed.gate.backward) == {"tensor"}
    assert cell.observed.check is not None
    assert cell.observed.check.passed, cell.observed.check


# ---------------------------------------------------------------- samples without time, samples without rest


@pytest.mark.parametrize("durations", [(0,), (4 * MS,)])
def test_samples_that_are_all_alike_end_and_divide_by_nothing(
    monkeypatch: pytest.MonkeyPatch, durations: tuple[int, ...]
) -> None:
    outcome = on_paper(monkeypatch, durations=durations)
    assert [cell.status for cell in outcome.cells] == ["ok"] * (1 + len(PHASES))
    found = walls(outcome, whole(outcome))
    assert set(found) == {durations[0]}
    drift = drift_of([wall or 0 for wall in found] * 5)
    assert drift is None if durations == (0,) else drift is not None and (drift.share, drift.drifts) == (0, False)


def test_a_step_that_never_rests_ends_all_the_same_and_names_what_was_not_met(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    wild = [draw.choice((MS, 90 * MS)) for _ in range(4000)]
    outcome = on_paper(monkeypatch, durations=wild, rounds=4, rounds_most=2)
    (note,) = outcome.notes
    assert "8 rounds: the most that are taken; the widest wall interval is still ±" in note
    assert len(walls(outcome, whole(outcome))) == 8 * QUICK.samples


def test_rounds_end_when_their_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    wild = [draw.choice((MS, 90 * MS)) for _ in range(4000)]
    outcome = on_paper(monkeypatch, durations=wild, rounds=3, rounds_most=1000, cell_seconds=2.0)
    assert "out of time (2 s a cell)" in outcome.notes[-1]
    assert 3 * QUICK.samples <= len(walls(outcome, whole(outcome))) < 1000


# ---------------------------------------------------------------- gradients, samplers


def test_no_backward_adds_to_the_gradients_of_the_one_before() -> None:
    case = StepCase(spec())
    case.optimizer.param_groups[0]["lr"] = 0.0
    case.optimizer.param_groups[0]["weight_decay"] = 0.0
    kept = []
    for _ in range(3):
        case.prepare(0)
        for phase in case.phases[:5]:  # all but the average, which would move the teacher
            phase.run()
        kept.append([weight.grad.clone() for weight in case.model.parameters() if weight.grad is not None])
    assert kept[0]
    for later in kept[1:]:
        assert all(torch.equal(one, other) for one, other in zip(kept[0], later, strict=True))
    assert "sets the gradients to None" in PHASES_LEGEND


def test_the_sampler_runs_in_a_loop_of_its_own_behind_the_timed_part() -> None:
    seen: list[str] = []

    def sample_while(loop: object) -> tuple[UtilReading, ...]:
        seen.append("sampled")
        loop()  # type: ignore[operator]
        return ()

    bench = replace(make_bench("cpu", util=False), sample_while=sample_while)
    outcome = measured(spec("copy"), bench=bench, effort=replace(QUICK, util_seconds=0.02))
    assert seen == ["sampled"]
    samples = outcome.samples[whole(outcome).id]
    (loop,) = [s for s in samples if s.repeat == "util"]
    timed = [s for s in samples if s.repeat in ("unprofiled", "pipelined")]
    assert all(s.t_ns + (s.wall_ns or 0) <= loop.t_ns for s in timed)


# ---------------------------------------------------------------- graphs


def test_a_step_that_cannot_be_captured_says_where_and_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Capture(
        captured=False,
        operation="aten::item",
        where="train.py:31",
        error="cudaErrorStreamCaptureUnsupported (900): operation not permitted when stream is capturing",
    )
    monkeypatch.setattr(group_module, "capture_step", lambda *_: Made(None, refused))
    monkeypatch.setattr(group_module, "history_of", lambda _device: None)
    bench = replace(make_bench("cpu", util=False), device=FakeDevice())
    outcome = measured(spec("copy"), bench=bench, modes=("graph", "reduce-overhead"))
    by_mode = {cell.key.mode: cell for cell in outcome.cells}
    assert by_mode["eager"].status == "ok"
    assert walls(outcome, by_mode["eager"])
    for mode in ("graph", "reduce-overhead"):
        error = by_mode[mode].error
        assert by_mode[mode].status == "failed"
        assert error is not None
        assert error.type == "CaptureFailure"
        assert error.text.startswith(
            "capture failed at aten::item (train.py:31): cudaErrorStreamCaptureUnsupported (900)"
        )
        assert by_mode[mode].id not in outcome.samples


def test_outputs_that_the_next_replay_overwrites_are_compared_as_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    static = StepCase(spec())
    static.prepare(0)
    static.run()
    buffers = {name: value.clone() for name, value in static.outputs().items()}

    def run() -> None:
        static.run()
        for name, value in static.outputs().items():
            buffers[name].copy_(value)

    def outputs() -> Outputs:
        return buffers

    check, stale_failed = check_replays(GraphedStep(static, run, outputs), StepCase(spec()))
    assert check.passed, check
    assert stale_failed
    assert {tensor.name for tensor in check.tensors} >= {"loss0", "loss3", "h0", "h3", "weights"}


def test_garbage_collection_is_off_inside_a_step_and_back_behind_it_even_when_it_breaks() -> None:
    inside = []

    def look() -> None:
        inside.append(gc.isenabled())

    def fail() -> None:
        look()
        raise ValueError("stop")

    case = StepCase(spec("copy"))
    case.phases = (Phase("fwd", look), Phase("bwd", fail))
    assert gc.isenabled()
    with pytest.raises(ValueError, match="stop"):
        run_bordered(case, CpuDevice(), MonotonicClock())
    assert inside == [False, False]
    assert gc.isenabled()
