"""Attention by backend and products by precision on a card: right, named by their kernels, reasons where refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import small_probes
import torch
from small_probes import kernels_say, rules
from torch.backends import cuda as switches

from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.probe import session
from kdaprof.probe.child import ChildResult, ChildSpec
from kdaprof.probe.library import settings_kept
from kdaprof.probe.library_plan import LIBRARY_EFFORT, LibraryRequest
from kdaprof.probe.real import real_lab
from kdaprof.probe.session import run_probe
from kdaprof.report.progress import Silent
from kdaprof.runs.record import CellRecord
from kdaprof.runs.results import CellResult

pytestmark = pytest.mark.gpu

EFFORT = replace(
    LIBRARY_EFFORT, rounds=2, rounds_most=1, samples=3, warmup=2, events=2, burst=3, allocator=2, profiled=3
)
SIZES = {"mha": "1,2,128,64", "gemm": "256,256,256"}
Cells = list[tuple[CellRecord, CellResult]]


def in_this_process(spec: ChildSpec, *, env: Mapping[str, str], timeout_s: float) -> ChildResult:
    with settings_kept(spec.cases[0].key.workload):  # in a process of its own nobody needs them back
        return small_probes.in_this_process(spec, env=env, timeout_s=timeout_s)


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cells]:
    monkeypatch.setattr(session, "measure_ceilings", lambda *_: ())

    def run(workload: str, paths: str, dtype: str, phases: str, modes: str = "eager") -> Cells:
        request = LibraryRequest(
            workload=workload, paths=paths, contexts="plain", modes=modes, phases=phases, shape=SIZES[workload],
            chunk=16, dtype=dtype, device="cuda", cache="rotate", cold=False, seed=0, effort=EFFORT,
            out=tmp_path / "run", force=False, anonymous=False, command=("kdaprof", "probe"),
        )  # fmt: skip
        asked = request.checked().plan("cuda:0")
        lab = real_lab(asked, Silent())
        look = lab.snapshot
        run_probe(asked, replace(lab, spawn=in_this_process, snapshot=lambda _careful: look(False)))
        raw = load_raw(asked.out)
        results = derive(raw)
        return [(cell, results.cell(cell.id)) for cell in raw.record.cells]

    return run


@pytest.mark.parametrize("phases", ["fwd", "fwdbwd"])
def test_attention_is_right_and_its_kernels_name_the_backend(probe: Callable[..., Cells], phases: str) -> None:
    before = switches.flash_sdp_enabled(), switches.math_sdp_enabled()
    cells = probe("mha", "flash,cudnn,mem-efficient,math,composite", "float32,bfloat16", phases)
    assert len(cells) == 10
    ran = {(c.key.path, c.key.dtype) for c, _ in cells if c.status == "ok"}
    assert {("mem-efficient", "float32"), ("math", "float32"), ("composite", "bfloat16")} <= ran
    for cell, result in cells:
        if cell.status != "ok":
            assert cell.status == "unavailable", cell.error
            assert cell.error is not None
            assert len(cell.error.text) > 10
            continue
        assert kernels_say(result) == cell.key.path, result.evidence
        assert result.evidence.verdict != "contradicted"
        assert not rules(result) & {"Q06", "Q07", "Q09"}, result.facts["wall_ns"].reasons
    assert before == (switches.flash_sdp_enabled(), switches.math_sdp_enabled())


def test_flash_and_cudnn_have_no_float32(probe: Callable[..., Cells]) -> None:
    """Case 43: torch's own reason, and the run goes on."""
    for cell, _ in probe("mha", "flash,cudnn,math", "float32", "fwd"):
        assert cell.status == ("ok" if cell.key.path == "math" else "unavailable")
        if cell.error is not None:
            assert "UNAVAILABLE" not in cell.error.text
            assert len(cell.error.text) > 10


def test_attention_in_a_graph_replays_what_eager_gives(probe: Callable[..., Cells]) -> None:
    for cell, result in probe("mha", "mem-efficient,math", "bfloat16", "fwd", "eager,graph"):
        assert cell.status == "ok", cell.error
        assert not rules(result) & {"Q06", "Q09"}, (cell.id, result.facts["wall_ns"].reasons)


def test_products_are_right_and_their_kernels_name_the_precision(probe: Callable[..., Cells], tmp_path: Path) -> None:
    before = torch.get_float32_matmul_precision()
    cells = probe("gemm", "fp32,tf32,fp16,bf16,fp8", "", "fwd")
    assert torch.get_float32_matmul_precision() == before
    for cell, result in cells:
        if cell.status == "unavailable":  # a card without this precision says so
            assert cell.key.path in ("tf32", "fp8")
            continue
        assert cell.status == "ok", cell.error
        assert kernels_say(result) == cell.key.path, result.evidence
        assert not rules(result) & {"Q06", "Q09"}, result.facts["wall_ns"].reasons
    raw = load_raw(tmp_path / "run")
    read = {row.t_ns for row in raw.util if row.field == "power_w"}
    samples = [s for rows in raw.samples.values() for s in rows if s.repeat == "unprofiled" and s.round >= 0]
    assert samples
    assert all(s.t_ns in read for s in samples)
