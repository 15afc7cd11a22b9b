"""The dispatch matrix on the real op: the same path in every context, and a gate that tests an exact type is caught."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from kdaprof.cli.main import main
from kdaprof.errors import Exit
from kdaprof.instruments.device import CpuDevice
from kdaprof.kda import api
from kdaprof.probe.dispatch.matrix import BASE, SHAPES, op_row, op_rows
from kdaprof.runs.dispatch import away_from_plain, dispatch_schema
from kdaprof.workloads.dispatch import DISPATCH_CONTEXTS

QUICK = ("plain", "autocast", "checkpoint", "no_grad", "parameter", "subclass")


def plant_exact_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault of the field report: whoever is not exactly the plain type gets the slow path."""
    real = api._make_plan

    def planted(op: Any, x: Any, initial_state: Any, chunk: int, path: str) -> Any:
        return real(op, x, initial_state, chunk, path if type(x.q) is torch.Tensor else "tensor")

    monkeypatch.setattr(api, "_make_plan", planted)


@pytest.mark.usefixtures("fused_on_cpu")
@pytest.mark.filterwarnings("ignore")
def test_every_context_takes_the_path_of_a_plain_call_or_says_why() -> None:
    rows = list(op_rows(CpuDevice(), contexts=DISPATCH_CONTEXTS, dtypes=("float32",), shapes=(BASE,)))
    assert [row.context for row in rows] == list(DISPATCH_CONTEXTS)
    assert {row.status for row in rows} == {"ok"}, [row.detail for row in rows if row.detail]
    assert {row.context: row.chosen for row in rows if row.chosen != "fused"} == {"vmap": "tensor"}
    (away,) = away_from_plain(rows)
    assert (away.was, away.now) == ("fused", "tensor")
    assert "torch.func" in (away.reason or "")
    for row in rows:
        assert row.evidence is not None
        assert row.evidence.verdict == "gate-only", row
        assert {refusal.path for refusal in row.refused} | {row.chosen} >= {"fused", "tensor", "compiled", "reference"}


def test_awkward_shapes_and_dtypes_have_their_real_reason() -> None:
    rows = list(op_rows(CpuDevice(), contexts=("plain",), dtypes=("float32", "float64"), shapes=SHAPES))
    assert len(rows) == 2 * len(SHAPES)
    assert {row.status for row in rows} == {"ok"}
    reasons = {row.key: next(r.reason for r in row.refused if r.path == "fused") for row in rows}
    assert "K = 40" in reasons["kda/plain/B1-T24-H2-K40-V40-C16/float32"]
    assert "float64" in reasons["kda/plain/B0-T24-H2-K32-V32-C16/float64"]
    assert "device cpu" in reasons["kda/plain/B2-T5-H2-K32-V32-C16/float32"]


@pytest.mark.usefixtures("fused_on_cpu")
def test_a_gate_that_tests_an_exact_type_is_caught_in_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_exact_type(monkeypatch)
    rows = list(op_rows(CpuDevice(), contexts=QUICK, dtypes=("float32",), shapes=(BASE,)))
    away = {difference.key.split("/")[1] for difference in away_from_plain(rows)}
    assert away == {"parameter", "subclass"}


@pytest.mark.usefixtures("fused_on_cpu")
def test_a_planted_gate_fails_the_check_of_a_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "dispatch.json"
    words = ["dispatch", "--ops", "kda", "--contexts", ",".join(QUICK), "--dtypes", "float32", "--device", "cpu"]
    assert main([*words, "--shape", "1,20,1,32,32", "--save", str(saved)]) == Exit.OK
    jsonschema.validate(json.loads(saved.read_bytes()), dispatch_schema())
    assert main([*words, "--shape", "1,20,1,32,32", "--against", str(saved)]) == Exit.OK
    assert "No path changed" in capsys.readouterr().out
    plant_exact_type(monkeypatch)
    monkeypatch.setattr(api, "_plans", {})
    assert main([*words, "--shape", "1,20,1,32,32", "--against", str(saved), "--json"]) == Exit.REGRESSION
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, dispatch_schema())
    assert {(d["key"].split("/")[1], d["was"], d["now"]) for d in found["changes"]} == {
        ("parameter", "fused", "tensor"),
        ("subclass", "fused", "tensor"),
    }


def test_a_call_that_fails_is_a_row_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> Any:
        raise RuntimeError("no kernel image is available\nC++ stack")

    monkeypatch.setattr(api, "_make_plan", broken)
    row = op_row(CpuDevice(), "plain", "float32", BASE)
    assert (row.status, row.chosen, row.detail) == ("failed", None, "RuntimeError: no kernel image is available")
