"""The probe on a card, whole: session, profiled repeats, evidence. Children run in this process unless it says so."""

from __future__ import annotations

import getpass
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from small_probes import EFFORT, in_this_process

from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.kda.shapes import Operands
from kdaprof.kda.tensor import chunk_gdn2
from kdaprof.probe import graph_case, session
from kdaprof.probe.graph_case import capture_case
from kdaprof.probe.plan import Plan, Request
from kdaprof.probe.real import real_lab
from kdaprof.probe.session import run_probe
from kdaprof.report.progress import Silent
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.document import run_schema
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.results import CellResult, RunResults
from kdaprof.workloads import op as op_module
from kdaprof.workloads.op import CaseSpec, OpCase

pytestmark = pytest.mark.gpu

Op = Callable[..., torch.Tensor]
SIZES = (2, 64, 2, 64, 64)


def plan(out: Path, path: str, **changes: str) -> Plan:
    asked: dict[str, Any] = {"contexts": "plain", "modes": "eager,graph", "phases": "fwd"} | changes
    return Request(
        paths=path,
        shape=",".join(map(str, SIZES)),
        chunk=16,
        dtype="float32",
        device="cuda",
        cache="rotate",
        cold=False,
        seed=0,
        effort=EFFORT,
        out=out,
        force=False,
        anonymous=False,
        command=("kdaprof", "probe"),
        **asked,
    ).plan("cuda:0")


class Probed:
    """A run read back from disk."""

    def __init__(self, out: Path) -> None:
        raw = load_raw(out)
        self.record: RunRecord = raw.record
        self.results: RunResults = derive(raw)

    def cell(self, mode: str = "eager", phase: str = "fwd") -> tuple[CellRecord, CellResult]:
        (record,) = (c for c in self.record.cells if (c.key.mode, c.key.phase) == (mode, phase))
        return record, self.results.cell(record.id)


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Probed]:
    """Probe one path at a small shape and derive everything, as the command does; ceilings are another test's."""
    monkeypatch.setattr(session, "measure_ceilings", lambda *_: ())

    def run(path: str, **changes: str) -> Probed:
        asked = plan(tmp_path / "run", path, **changes)
        lab = real_lab(asked, Silent())
        look = lab.snapshot
        run_probe(asked, replace(lab, spawn=in_this_process, snapshot=lambda _careful: look(False)))
        return Probed(asked.out)

    return run


def mislabel(monkeypatch: pytest.MonkeyPatch, label: str, op: Callable[[int], Op]) -> None:
    """Let the path `label` run `op`, whatever it is called."""
    real = op_module.op_of
    monkeypatch.setattr(op_module, "op_of", lambda path, chunk: op(chunk) if path == label else real(path, chunk))


def told(result: CellResult) -> dict[str, str | None]:
    return {witness.name: witness.says for witness in result.evidence.witnesses}


# ---------------------------------------------------------------- which path ran


@pytest.mark.parametrize("phase", ["fwd", "fwdbwd"])
def test_a_fused_cell_is_confirmed_by_three_witnesses(probe: Callable[..., Probed], phase: str) -> None:
    probed = probe("fused", phases=phase)
    record, result = probed.cell(phase=phase)
    assert record.status == "ok", record.error
    assert told(result) == {"gate": "fused", "kernels": "fused", "counts": "fused"}, result.evidence
    assert result.evidence.verdict == "confirmed"
    assert record.observed is not None
    assert record.observed.check is not None
    assert record.observed.check.passed
    for name in (
        "wall_ns",
        "host_ns",
        "gpu_span_ns",
        "gpu_busy_ns",
        "launches",
        "allocs",
        "pipelined_ns",
        "host_bound",
    ):
        assert result.facts[name].value is not None, (name, result.facts[name].detail)
    assert "path-contradicted" not in {finding.id for finding in probed.results.findings}
    replayed, graph = probed.cell("graph", phase)
    assert replayed.status == "ok", replayed.error
    assert graph.evidence.verdict != "contradicted", graph.evidence
    if phase == "fwd":
        assert told(graph)["gate"] == "fused"


def contradicted(probed: Probed) -> None:
    record, result = probed.cell()
    assert record.status == "ok", record.error
    assert result.evidence.verdict == "contradicted", result.evidence
    first = probed.results.findings[0]
    assert (first.id, first.severity) == ("path-contradicted", "error")
    assert first.next
    wall = result.facts["wall_ns"]
    assert wall.value is not None
    assert not wall.quotable
    assert "Q06" in {reason.rule for reason in wall.reasons}


def test_tensor_under_the_name_of_fused_is_contradicted(
    probe: Callable[..., Probed], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = op_module.op_of
    mislabel(monkeypatch, "fused", lambda chunk: real("tensor", chunk))
    probed = probe("fused")
    contradicted(probed)
    assert told(probed.cell()[1])["gate"] == "tensor"
    assert told(probed.cell()[1])["kernels"] != "fused"


def test_fused_under_the_name_of_tensor_is_contradicted(
    probe: Callable[..., Probed], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = op_module.op_of
    mislabel(monkeypatch, "tensor", lambda chunk: real("fused", chunk))
    probed = probe("tensor")
    contradicted(probed)
    assert told(probed.cell()[1])["gate"] == "fused"
    assert told(probed.cell()[1])["kernels"] == "fused"


def test_an_op_that_asks_no_gate_is_contradicted_by_what_ran(
    probe: Callable[..., Probed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first witness is silent; the other two do not need it."""

    def ungated(chunk: int) -> Op:
        def call(
            q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor
        ) -> torch.Tensor:
            gate = beta.unsqueeze(-1)
            return chunk_gdn2(Operands(q, k, v, g, gate, gate), scale=q.shape[-1] ** -0.5, chunk=chunk)[0]

        return call

    mislabel(monkeypatch, "fused", ungated)
    probed = probe("fused", modes="eager")
    contradicted(probed)
    assert told(probed.cell()[1])["gate"] is None
    assert told(probed.cell()[1])["kernels"] != "fused"


# ---------------------------------------------------------------- graphs


def case(path: str, phase: str, context: str = "plain", device: str = "cuda:0") -> OpCase:
    key = CellKey("kda", path, context, "eager", phase, make_shape("kda", (*SIZES, 16)), "float32")
    return OpCase(CaseSpec(key=key, device=device, seed=0, input_sets=2))


@pytest.mark.parametrize("path", ["fused", "tensor"])
@pytest.mark.parametrize("phase", ["fwd", "bwd", "fwdbwd"])
def test_replays_equal_eager_with_inputs_changed_in_place_and_stale_outputs_fail(path: str, phase: str) -> None:
    eager = case(path, phase)
    graph, capture = capture_case(eager, flush_bytes=1 << 20)
    assert graph is not None, capture
    assert capture.captured
    assert capture.check is not None
    assert capture.check.passed, capture.check
    assert capture.stale_check_failed is True
    assert [t.name for t in capture.check.tensors] == (
        ["o"] if phase == "fwd" else ["o", "dq", "dk", "dv", "dg", "dbeta"]
    )
    assert capture.pool_bytes
    graph.close()


@pytest.mark.parametrize("path", ["fused", "tensor"])
def test_a_graph_that_never_gets_its_new_inputs_does_not_pass(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(graph_case.GraphCase, "copy", lambda self: None)
    graph, capture = capture_case(case(path, "fwd"), flush_bytes=0)
    assert graph is not None, capture
    assert capture.check is not None
    assert not capture.check.passed
    graph.close()


def test_an_item_in_the_step_fails_to_capture_with_operation_and_line_and_the_process_goes_on(
    probe: Callable[..., Probed], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = op_module.op_of

    def with_item(chunk: int) -> Op:
        def call(*args: torch.Tensor) -> torch.Tensor:
            scale = args[2].abs().max().item()
            return real("tensor", chunk)(*args) * (scale / scale)

        return call

    with monkeypatch.context() as patch:
        mislabel(patch, "tensor", with_item)
        probed = probe("tensor")
    eager, _ = probed.cell()
    graph, result = probed.cell("graph")
    assert eager.status == "ok", eager.error
    assert graph.status == "failed"
    assert graph.error is not None
    assert graph.error.type == "CaptureFailure"
    assert graph.observed is not None
    seen = graph.observed.capture
    assert seen is not None
    assert not seen.captured
    assert "_local_scalar_dense" in (seen.operation or "")
    assert ".item()" in (seen.operation or "")
    assert re.fullmatch(rf"{re.escape(__file__)}:\d+", seen.where or ""), seen.where
    assert seen.hint
    assert result.facts["wall_ns"].value is None
    assert result.facts["wall_ns"].missing == "failed"
    assert any(finding.cell == graph.id for finding in probed.results.findings)
    # The process is usable: kernels, and another capture of the same path.
    again, capture = capture_case(case("tensor", "fwd"), flush_bytes=0)
    assert again is not None, capture
    assert capture.check is not None
    assert capture.check.passed
    again.close()


def test_the_backward_of_the_tensor_path_is_captured_alone(probe: Callable[..., Probed]) -> None:
    probed = probe("tensor", phases="bwd")
    eager, result = probed.cell(phase="bwd")
    graph, replayed = probed.cell("graph", "bwd")
    assert (eager.status, graph.status) == ("ok", "ok"), (eager.error, graph.error)
    assert graph.observed is not None
    assert graph.observed.capture is not None
    assert graph.observed.capture.check is not None
    assert graph.observed.capture.check.passed
    assert graph.observed.capture.stale_check_failed is True
    wall, busy = replayed.facts["wall_ns"].value, replayed.facts["gpu_busy_ns"].value
    assert wall
    assert busy
    assert wall < (result.facts["wall_ns"].value or 0)  # some hundred launches against one
    assert result.facts["pipelined_ns"].missing == "not-applicable"


# ---------------------------------------------------------------- contexts, with the device's full name


@pytest.mark.parametrize(
    "context", ["autocast", "checkpoint", "checkpoint-reentrant", "non-contiguous", "partial-grad"]
)
@pytest.mark.parametrize("path", ["fused", "tensor"])
def test_contexts_on_a_numbered_device(path: str, context: str) -> None:
    plain, wrapped = case(path, "fwdbwd"), case(path, "fwdbwd", context)
    for one in (plain, wrapped):
        one.prepare(0)
        one.run()
    want = plain.outputs()
    for name, value in wrapped.outputs().items():
        distance = float((value.double() - want[name].double()).norm() / want[name].double().norm())
        assert distance < 1e-5, (name, distance)


# ---------------------------------------------------------------- the command, with a child of its own


def test_the_command_on_a_card(tmp_path: Path) -> None:
    out = tmp_path / "run"
    argv = ["--path", "tensor", "--shape", "2,64,2,64,64", "--phases", "fwd", "--rounds", "2", "--samples", "3"]
    argv += ["--store", str(tmp_path / "store")]
    done = subprocess.run(
        [sys.executable, "-m", "kdaprof", "probe", *argv, "--util-seconds", "1", "--anonymous", "--json", "--out", out],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout, parse_constant=pytest.fail)
    if importlib.util.find_spec("jsonschema"):  # a GPU image need not have it; the CPU tests do
        from jsonschema import Draft202012Validator

        Draft202012Validator(run_schema()).validate(document)
    eager, graph = document["cells"]
    assert (eager["status"], graph["status"]) == ("ok", "ok")
    for name in ("wall_ns", "gpu_span_ns", "gpu_busy_ns", "launches", "allocs", "peak_bytes", "inflation", "util_mean"):
        assert eager["facts"][name]["value"] is not None, (name, eager["facts"][name])
    for name in ("wall_ns", "gpu_busy_ns", "pool_bytes", "input_copy_ns", "error_l2"):
        assert graph["facts"][name]["value"] is not None, (name, graph["facts"][name])
    assert eager["facts"]["gpu_busy_ns"]["value"] < eager["facts"]["wall_ns"]["value"]
    assert eager["evidence"]["verdict"] != "contradicted", eager["evidence"]
    assert {ceiling["name"] for ceiling in document["ceilings"]} >= {"copy", "matmul_float32", "matmul_tf32"}
    assert len(list(out.glob("timeline-*.parquet"))) == 3
    user = re.compile(rf"(?<![A-Za-z0-9]){re.escape(getpass.getuser())}(?![A-Za-z0-9])")
    for file in (p for p in out.rglob("*") if p.is_file()):
        columns = pq.read_table(file).to_pylist() if file.suffix == ".parquet" else ()
        text = repr(columns) if columns else file.read_text()
        for place in (str(tmp_path), str(Path.cwd()), f"{Path.home()}/", "site-packages"):
            assert place not in text, (file.name, place)
        assert columns or not user.search(text), file.name
    check = [sys.executable, "-m", "kdaprof", "report", str(out), "--check"]
    assert subprocess.run(check, capture_output=True, check=False, timeout=120).returncode == 0
