"""A training step on a card: phases that add up, the op proven inside it, captured modes that do what eager does."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.analysis.step.attribution import attributions
from kdaprof.instruments.graph_backend import private_pools
from kdaprof.probe.step.capture import capture_step, check_replays
from kdaprof.probe.step.check import check_step
from kdaprof.probe.step.plan import STEP_CONTEXTS, STEP_EFFORT, StepRequest
from kdaprof.probe.witness import observe_gate
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.workloads.step.spec import StepSpec
from kdaprof.workloads.step.training import StepCase

pytestmark = [
    pytest.mark.gpu,
    # torch's own words on what its compiler and its graphed callables do; nothing of them is ours to change.
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores for float32:UserWarning"),
]
SMALL = replace(STEP_EFFORT, rounds=2, rounds_most=1, samples=3, warmup=4, profiled=2, profiled_full=1, util_seconds=0)


def spec(path: str = "fused") -> StepSpec:
    key = CellKey("step", path, "plain", "eager", "step", make_shape("step", (2, 128, 2)), "float32")
    return StepSpec(key=key, device="cuda:0", seed=0)


def test_a_probed_step_is_whole(tmp_path: Path) -> None:
    from kdaprof.cli.probe_run import probe_and_report

    request = StepRequest(
        paths="fused,tensor",
        batch=(2,),
        seq=(128,),
        max_iter=(2,),
        ablate=True,
        halve=True,
        effort=SMALL,
        out=tmp_path / "run",
    )
    assert probe_and_report(request.checked(), as_json=False) == 0
    raw = load_raw(tmp_path / "run")
    results = derive(raw)
    cells = {cell.id: cell for cell in results.cells}
    for record in raw.record.cells:
        assert record.status == "ok", (record.id, record.error)
        verdict = cells[record.id].evidence.verdict
        if record.key.path != "copy" and record.key.mode == "eager":
            assert verdict == "confirmed", (record.id, cells[record.id].evidence)
        else:
            assert verdict in ("confirmed", "partial"), (record.id, cells[record.id].evidence)
    for one in attributions(raw.record, results):
        rows = {row.name: row for row in one.rows}
        phases = sum(float(row.facts["gpu_busy_ns"].value or 0) for row in one.rows if row.kind == "phase")
        assert phases == pytest.approx(float(rows["step"].facts["gpu_busy_ns"].value or 0), rel=0.05)
        launches = sum(float(row.facts["launches"].value or 0) for row in one.rows if row.kind == "phase")
        assert launches == rows["step"].facts["launches"].value
        if one.whole.path != "copy":
            assert 0 < (rows["bwd.kda"].facts["launches"].value or 0) < (rows["bwd"].facts["launches"].value or 0)
            assert (rows["bwd"].facts["allocs"].value or 0) >= (rows["bwd.kda"].facts["allocs"].value or 0) > 0


@pytest.mark.parametrize("context", STEP_CONTEXTS)
def test_a_step_takes_the_fused_path_in_every_context_that_trains(context: str) -> None:
    one = spec()
    one = replace(one, key=one.key.sibling(context=context))
    case = StepCase(one)
    case.prepare(0)
    gate = observe_gate(case.run)
    torch.cuda.synchronize()
    assert gate.chosen == "fused", gate
    if not gate.traced:  # inside a compiled region the gate is asked while it is traced, and not again
        assert gate.backward == {"fused": one.key.size("iters")}
    check = check_step(one)
    assert check.passed, check


@pytest.mark.parametrize("mode", ["graph", "graphed-callables", "reduce-overhead"])
def test_captured_steps_do_what_eager_steps_do(mode: str) -> None:
    made = capture_step(spec(), mode, lambda: private_pools(torch.cuda.current_device()))
    assert made.case is not None, made.capture
    assert made.capture.check is not None
    assert made.capture.check.passed, made.capture.check
    assert made.capture.stale_check_failed
    assert (made.capture.pool_bytes or 0) > 0


def test_a_wrong_replay_fails_the_check() -> None:
    made = capture_step(spec("tensor"), "graph", lambda: 0)
    assert made.case is not None
    other = StepCase(replace(spec("tensor"), seed=1))
    other.batches = [batch.flip(0).roll(1, dims=1) for batch in other.batches]
    check, _ = check_replays(made.case, other)
    assert not check.passed


def test_a_step_that_synchronises_is_refused_by_name_and_leaves_the_process_whole() -> None:
    one = spec("tensor")

    class Reading(StepCase):
        def __init__(self, given: StepSpec) -> None:
            super().__init__(given)
            plain = self.phases[2].run

            def retr() -> None:
                plain()
                assert math.isfinite(self.outputs()["loss"].item())

            self.phases = (*self.phases[:2], replace(self.phases[2], run=retr), *self.phases[3:])

    import kdaprof.probe.step.capture as module

    real = module.StepCase
    module.StepCase = Reading  # type: ignore[misc]
    try:
        made = capture_step(one, "graph", lambda: 0)
    finally:
        module.StepCase = real  # type: ignore[misc]
    assert made.case is None
    assert not made.capture.captured
    assert made.capture.operation
    case = StepCase(one)
    case.prepare(0)
    case.run()
    torch.cuda.synchronize()
