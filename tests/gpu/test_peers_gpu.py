"""FLA itself on a card: right within its own tolerance, known by its records and its kernels. It tunes for minutes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fla_configs import take_first_configurations
from small_probes import EFFORT, in_this_process, kernels_say, rules

from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.kda import kda
from kdaprof.kda.peers.arguments import named_parameters
from kdaprof.kda.peers.facts import FLA, installed_version
from kdaprof.kda.peers.loading import load
from kdaprof.probe import session
from kdaprof.probe.plan import Plan, Request
from kdaprof.probe.real import real_lab
from kdaprof.probe.session import run_probe
from kdaprof.report.progress import Silent
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.results import CellResult
from kdaprof.workloads import op as op_module

pytestmark = pytest.mark.gpu

needs_fla = pytest.mark.skipif(installed_version(FLA.distributions) is None, reason="fla-core is not installed")


def plan(out: Path, phases: str) -> Plan:
    """Our fused path and FLA at a small shape, eager and graph."""
    return Request(
        paths="fused,fla", contexts="plain", modes="eager,graph", phases=phases, shape="2,128,2,64,64", chunk=16,
        dtype="float32", device="cuda", cache="rotate", cold=False, seed=0, effort=EFFORT, out=out, force=False,
        anonymous=False, command=("kdaprof", "probe"),
    ).plan("cuda:0")  # fmt: skip


def of_fla(out: Path) -> tuple[RunRecord, list[tuple[CellRecord, CellResult]]]:
    raw = load_raw(out)
    results = derive(raw)
    return raw.record, [(c, results.cell(c.id)) for c in raw.record.cells if c.key.path == "fla"]


@needs_fla
def test_the_installed_signature_has_what_the_adapter_needs() -> None:
    installed = load(FLA, "cuda")
    assert {"q", "k", "v", "g", "beta", "scale", "use_gate_in_kernel"} <= named_parameters(installed.function)


@needs_fla
@pytest.mark.slow
def test_fla_beside_the_fused_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert take_first_configurations(monkeypatch) > 20
    asked = plan(tmp_path / "run", "fwdbwd")
    run_probe(asked, replace(real_lab(asked, Silent()), spawn=in_this_process))
    record, cells = of_fla(asked.out)
    assert len(cells) == 2
    for cell, result in cells:
        assert cell.status == "ok", cell.error
        assert result.evidence.verdict in ("confirmed", "partial"), result.evidence
        assert kernels_say(result) == "fla"
        assert not rules(result) & {"Q06", "Q07", "Q09", "Q15"}
    seen = cells[0][0].observed
    assert seen is not None
    assert seen.check is not None
    assert seen.gate is not None
    # tf32: ours would fail with such an error.
    assert 1e-5 < max(row.l2 or 0.0 for row in seen.check.tensors) < FLA.tolerance["float32"]
    assert seen.gate.forward == {"fla": 1}
    assert record.environment.version("fla-core") == installed_version(("fla-core",))
    set_here = {name for name in os.environ if name.startswith("FLA_")}
    assert set_here <= {variable.name for variable in record.environment.variables}


def test_a_peer_that_runs_our_kernels_is_compared_with_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ours(*_args: object, **_kwargs: object) -> Callable[..., torch.Tensor]:
        return lambda *args: kda(*args, path="fused")[0]

    monkeypatch.setattr(op_module, "peer_op", ours)
    monkeypatch.setattr(session, "measure_ceilings", lambda *_: ())
    asked = plan(tmp_path / "run", "fwd")
    lab = real_lab(asked, Silent())
    run_probe(asked, replace(lab, spawn=in_this_process))
    for _, result in of_fla(asked.out)[1]:
        assert result.evidence.verdict == "contradicted"
        assert rules(result) >= {"Q06", "Q15"}
