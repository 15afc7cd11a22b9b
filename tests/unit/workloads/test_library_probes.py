"""The probes of attention and of a matrix product, run whole on the CPU at a tiny size."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

PROBES = Path(__file__).resolve().parents[3] / "probes"
BRIEF = ("--rounds", "1", "--samples", "2", "--json")


def run_script(
    name: str, *flags: str, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, dict[str, object]]:
    """The cells of the run that a probe's script made, by path."""
    monkeypatch.setattr(sys, "argv", [name, *BRIEF, *flags, "--out", str(out), "--store", str(out.parent / "store")])
    monkeypatch.syspath_prepend(str(PROBES))
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(PROBES / name), run_name="__main__")
    assert left.value.code == 0
    return {cell["path"]: cell for cell in json.loads(capsys.readouterr().out)["cells"]}


def test_attention_backends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = run_script(
        "attention_backends.py", "--dtype", "float32", out=tmp_path / "run", monkeypatch=monkeypatch, capsys=capsys
    )
    assert {path: cell["status"] for path, cell in cells.items()} == {
        "flash": "ok",
        "cudnn": "unavailable",
        "mem-efficient": "unavailable",
        "math": "ok",
        "composite": "ok",
    }
    assert "scaled_dot_product_attention" in str(cells["cudnn"]["error"])


def test_gemm_precisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cells = run_script("gemm_precisions.py", out=tmp_path / "run", monkeypatch=monkeypatch, capsys=capsys)
    assert {path: cell["dtype"] for path, cell in cells.items() if cell["status"] == "ok"} == {
        "fp32": "float32",
        "fp16": "float16",
        "bf16": "bfloat16",
        "fp8": "float8_e4m3fn",
    }
    assert "tensor cores" in str(cells["tf32"]["error"])
