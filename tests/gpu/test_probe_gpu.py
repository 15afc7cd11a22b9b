"""The probe on a card: witnesses, a mislabelled path, captures that follow their inputs, a failed capture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kdaprof.analysis.recompute import recompute
from kdaprof.instruments.capturefault import CaptureFailure
from kdaprof.instruments.graphs import capture
from kdaprof.probe import profiled
from kdaprof.probe.check import REPLAY_TOLERANCE, compare
from kdaprof.probe.child import ChildCell, ChildResult, ChildSpec
from kdaprof.probe.graph_case import capture_case
from kdaprof.probe.lab import Lab
from kdaprof.probe.plan import Effort, Plan, Request
from kdaprof.probe.real import real_lab
from kdaprof.probe.session import run_probe
from kdaprof.report.progress import Silent
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.results import RunResults
from kdaprof.workloads import op as workload
from kdaprof.workloads.contexts import Op
from kdaprof.workloads.op import CaseSpec, OpCase

pytestmark = pytest.mark.gpu

QUICK = Effort(rounds=2, rounds_most=1, samples=3, warmup=3, events=2, burst=3, allocator=2, profiled=3, util_seconds=0)
SIZES = (2, 64, 2, 64, 64, 16)


def quick_plan(out: Path, paths: str, phases: str = "fwd", modes: str = "eager") -> Plan:
    request = Request(
        paths=paths,
        contexts="plain",
        modes=modes,
        phases=phases,
        shape=",".join(map(str, SIZES[:5])),
        chunk=16,
        dtype="float32",
        device="cuda:0",
        cache="rotate",
        cold=False,
        seed=0,
        effort=QUICK,
        out=out,
        force=False,
        anonymous=False,
        command=("kdaprof", "probe"),
    )
    return request.checked().plan("cuda:0")


def profiled_here(spec: ChildSpec, *, env: object, timeout_s: float) -> ChildResult:
    """The child's work in this process: what a test has put in the op's place holds there as well."""
    cells: list[ChildCell] = [profiled.profile_cell(case, spec) for case in spec.cases]
    return ChildResult(cells=tuple(cells))


def probed(plan: Plan) -> RunResults:
    lab = real_lab(plan, Silent())
    here = Lab(
        bench=lab.bench,
        spawn=profiled_here,
        snapshot=lab.snapshot,
        environment=lab.environment,
        secrets=lab.secrets,
        progress=lab.progress,
    )
    outcome = run_probe(plan, here)
    assert all(cell.status == "ok" for cell in outcome.record.cells), [c.error for c in outcome.record.cells]
    return recompute(outcome.path)


def test_a_fused_call_is_confirmed_by_three_witnesses(tmp_path: Path) -> None:
    results = probed(quick_plan(tmp_path / "run", "fused,tensor", "fwd,fwdbwd"))
    for cell in results.cells:
        assert cell.evidence.verdict == "confirmed", cell.evidence
        assert {witness.says for witness in cell.evidence.witnesses} == {cell.evidence.expected}


@pytest.mark.parametrize(("label", "really"), [("fused", "tensor"), ("tensor", "fused")])
def test_a_mislabelled_path_is_contradicted(
    label: str, really: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest: Callable[[str, int], Op] = workload.op_of
    monkeypatch.setattr(workload, "op_of", lambda _path, chunk: honest(really, chunk))
    results = probed(quick_plan(tmp_path / "run", label))
    cell = results.cells[0]
    assert cell.evidence.verdict == "contradicted", cell.evidence
    says = {witness.name: witness.says for witness in cell.evidence.witnesses}
    assert says["gate"] == really
    assert says["kernels"] == really
    assert says["counts"] == f"not {label}"
    assert not cell.facts["wall_ns"].quotable


@pytest.mark.parametrize("path", ["fused", "tensor"])
@pytest.mark.parametrize("phase", ["fwd", "bwd", "fwdbwd"])
def test_replays_equal_eager_and_a_stale_output_fails(path: str, phase: str) -> None:
    key = CellKey("kda", path, "plain", "graph", phase, make_shape("kda", SIZES), "float32")
    eager = OpCase(CaseSpec(key=key, device="cuda:0", seed=0, input_sets=2))
    case, seen = capture_case(eager, flush_bytes=0)
    assert case is not None, seen
    assert seen.check is not None
    assert seen.check.passed, seen.check
    assert seen.stale_check_failed is True
    assert seen.pool_bytes
    case.prepare(0)
    case.run()
    torch.cuda.synchronize()
    stale = {name: value.clone() for name, value in case.outputs().items()}
    case.prepare(1)
    case.run()
    torch.cuda.synchronize()
    assert not compare(stale, case.outputs(), against="the next replay", tolerance=REPLAY_TOLERANCE).passed
    case.close()


def test_a_step_that_reads_a_value_names_operation_and_line_and_the_process_goes_on() -> None:
    x = torch.randn(64, 64, device="cuda")

    def step() -> torch.Tensor:
        return x * float(x.abs().max())  # brings a value to the host

    failure = capture(step)
    assert isinstance(failure, CaptureFailure)
    assert failure.file == __file__
    assert failure.line == step.__code__.co_firstlineno + 1
    assert torch.isfinite(x @ x).all().item()


def test_the_whole_probe_in_its_own_children(tmp_path: Path) -> None:
    plan = quick_plan(tmp_path / "run", "fused", "fwd,bwd", "eager,graph")
    outcome = run_probe(plan, real_lab(plan, Silent()))
    assert outcome.record.complete
    assert [cell.status for cell in outcome.record.cells] == ["ok"] * 4
    results = recompute(outcome.path)
    assert all(cell.facts["gpu_busy_ns"].value for cell in results.cells)
    assert all(cell.evidence.verdict == "confirmed" for cell in results.cells)
