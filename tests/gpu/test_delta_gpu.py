"""KDA's relatives on a card: right on our paths and captured; FLA's kernels for them, untuned."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fla_configs import take_first_configurations
from small_probes import EFFORT, rules

from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.doctor.faults import FAULTS
from kdaprof.kda.peers.facts import FLA, installed_version
from kdaprof.probe.dispatch.peers import version_of
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
    """The workload at a small shape, eager and graph, as `kdaprof probe` measures it."""
    plan = Request(
        workload=workload, paths=paths, contexts="plain", modes="eager,graph", phases=phases, shape="2,96,2,64,64",
        chunk=16, dtype="float32", device="cuda", cache="rotate", cold=False, seed=0, effort=EFFORT, out=out,
        force=False, anonymous=False, command=("kdaprof", "probe"),
    ).plan("cuda:0")  # fmt: skip
    run_probe(plan, real_lab(plan, Silent()))
    raw = load_raw(out)
    results = derive(raw)
    return [(cell, results.cell(cell.id)) for cell in raw.record.cells]


def kernels(result: CellResult) -> str | None:
    assert result.evidence is not None
    return next(witness.says for witness in result.evidence.witnesses if witness.name == "kernels")


@pytest.mark.parametrize(
    ("workload", "paths"), [("gdn", "fused,tensor"), ("gdn2", "tensor,tensor-rows"), ("precond_kda", "reference")]
)
def test_our_paths_compute_it_eager_and_captured(workload: str, paths: str, tmp_path: Path) -> None:
    cells = probed(workload, paths, tmp_path / "run")
    assert len(cells) == 2 * len(paths.split(","))
    for cell, result in cells:
        assert cell.status == "ok", cell.error
        assert not rules(result) & {"Q06", "Q09"}, cell.id
        assert kernels(result) == cell.key.path
        assert result.evidence is not None
        assert result.evidence.verdict == "partial"  # nobody declared counts for it


@needs_fla
@pytest.mark.slow
@pytest.mark.parametrize("workload", ["gdn", "gdn2", "precond_kda"])
def test_fla_keeps_its_tolerance_and_is_known_by_its_kernels(
    workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert take_first_configurations(tmp_path / "configurations", monkeypatch) > 20
    cells = probed(workload, "fla", tmp_path / "run", phases="fwd,fwdbwd")
    assert len(cells) == 4
    if workload == "gdn" and HOPPER_BACKWARD.strikes(torch.cuda.get_device_capability(), version_of):
        refused = [cell for cell, _ in cells if cell.key.phase == "fwdbwd"]
        assert all(cell.status == "failed" and "#640" in cell.error.text for cell in refused if cell.error)
        assert all(cell.error for cell in refused)
        cells = [(cell, result) for cell, result in cells if cell not in refused]
    for cell, result in cells:
        assert cell.status == "ok", cell.error
        assert kernels(result) == "fla"
        assert not rules(result) & {"Q06", "Q07", "Q09", "Q15"}, cell.id
    seen = cells[-1][0].observed
    assert seen is not None
    assert seen.check is not None
    assert seen.gate is not None
    assert seen.gate.forward == {"fla": 1}
    if cells[-1][0].key.phase == "fwdbwd":
        assert seen.gate.backward == {"fla": 1}
    # One pass of tf32: our own paths would fail with such an error.
    assert 1e-5 < max(row.l2 or 0.0 for row in seen.check.tensors) < FLA.tolerance["float32"]
