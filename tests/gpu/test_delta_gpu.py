"""KDA's relatives on a card: right on our paths and captured; FLA's kernels for them, untuned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fla_configs import take_first_configurations
from small_probes import EFFORT, in_this_process, kernels_say, rules

from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.doctor.faults import FAULTS
from kdaprof.kda.peers.facts import FLA, installed_version
from kdaprof.probe.plan import Request
from kdaprof.probe.real import real_lab
from kdaprof.probe.session import run_probe
from kdaprof.report.progress import Silent
from kdaprof.runs.record import CellRecord
from kdaprof.runs.results import CellResult

pytestmark = pytest.mark.gpu

needs_fla = pytest.mark.skipif(installed_version(FLA.distributions) is None, reason="fla-core is not installed")

HOPPER_BACKWARD = next(fault for fault in FAULTS if fault.id == "hopper-gated-backward")

Cells = list[tuple[CellRecord, CellResult]]


def probed(workload: str, paths: str, out: Path, *, phases: str = "fwdbwd") -> Cells:
    """The workload at a small shape, eager and graph, as `kdaprof probe` measures it, all in this process."""
    plan = Request(
        workload=workload, paths=paths, contexts="plain", modes="eager,graph", phases=phases, shape="2,96,2,64,64",
        chunk=16, dtype="float32", device="cuda", cache="rotate", cold=False, seed=0, effort=EFFORT, out=out,
        force=False, anonymous=False, command=("kdaprof", "probe"),
    ).plan("cuda:0")  # fmt: skip
    run_probe(plan, replace(real_lab(plan, Silent()), spawn=in_this_process))
    raw = load_raw(out)
    results = derive(raw)
    return [(cell, results.cell(cell.id)) for cell in raw.record.cells]


def refuses_backward(workload: str) -> bool:
    """Whether FLA refuses the workload's backward here, since this Triton miscompiles it on this card."""
    return workload == "gdn" and HOPPER_BACKWARD.strikes(
        torch.cuda.get_device_capability(), lambda name: installed_version((name,))
    )


@pytest.mark.parametrize(
    ("workload", "paths"), [("gdn", "fused,tensor"), ("gdn2", "tensor,tensor-rows"), ("precond_kda", "reference")]
)
def test_our_paths_compute_it_eager_and_captured(workload: str, paths: str, tmp_path: Path) -> None:
    cells = probed(workload, paths, tmp_path / "run")
    assert len(cells) == 2 * len(paths.split(","))
    for cell, result in cells:
        assert cell.status == "ok", cell.error
        assert not rules(result) & {"Q06", "Q09"}, cell.id
        assert kernels_say(result) == cell.key.path
        assert result.evidence is not None
        assert result.evidence.verdict == "partial"  # nobody declared counts for it


@needs_fla
@pytest.mark.slow
@pytest.mark.parametrize("workload", ["gdn", "gdn2", "precond_kda"])
def test_fla_keeps_its_tolerance_and_is_known_by_its_kernels(
    workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert take_first_configurations(monkeypatch) > 20
    phases = "fwd" if refuses_backward(workload) else "fwdbwd"
    cells = probed(workload, "fla", tmp_path / "run", phases=phases)
    assert len(cells) == 2
    for cell, result in cells:
        assert cell.status == "ok", cell.error
        assert kernels_say(result) == "fla"
        assert not rules(result) & {"Q06", "Q07", "Q09", "Q15"}, cell.id
    seen = cells[0][0].observed
    assert seen is not None
    assert seen.check is not None
    assert seen.gate is not None
    assert seen.gate.forward == {"fla": 1}
    if phases == "fwdbwd":
        assert seen.gate.backward == {"fla": 1}
    # One pass of tf32: our own paths would fail with such an error.
    assert 1e-5 < max(row.l2 or 0.0 for row in seen.check.tensors) < FLA.tolerance["float32"]


@needs_fla
@pytest.mark.slow
def test_a_backward_that_fla_refuses_is_a_failed_cell_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not refuses_backward("gdn"):
        pytest.skip("FLA runs this backward on this card with this Triton")
    take_first_configurations(monkeypatch)
    cells = [cell for cell, _ in probed("gdn", "fla", tmp_path / "run", phases="fwdbwd")]
    eager, graph = sorted(cells, key=lambda cell: cell.key.mode)
    assert eager.status == "failed"
    assert eager.error is not None
    assert "#640" in eager.error.text
    assert graph.status == "unavailable"
