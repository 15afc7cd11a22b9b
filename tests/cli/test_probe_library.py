"""`kdaprof probe --workload mha|gemm`: what is refused in one line, and real runs on the CPU, seen from outside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from kdaprof.cli.main import main
from kdaprof.runs.document import run_schema

BRIEF = ("--rounds", "1", "--samples", "2", "--util-seconds", "0")
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def probe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Probe into `tmp_path/run` and return exit code and stdout."""

    def run(*flags: str) -> tuple[int, str]:
        code = main(["probe", *BRIEF, *flags, "--out", str(tmp_path / "run"), "--store", str(tmp_path / "store")])
        return code, capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--workload", "mha", "--path", "fused"], "'fused' is unknown; choose from flash, cudnn, mem-efficient, math"),
        (["--workload", "gemm", "--paths", "int8"], "'int8' is unknown; choose from fp32, tf32, fp16, bf16, fp8"),
        (["--workload", "mha", "--dtype", "float64"], "choose from float32, bfloat16, float16"),
        (["--workload", "gemm", "--dtype", "float32"], "--dtype: a product's paths name its precision"),
        (["--workload", "gemm", "--phases", "bwd"], "--phases: 'bwd' is unknown; choose from fwd"),
        (["--workload", "mha", "--shape", "1,2,3"], "needs 4 sizes, B,H,T,D"),
        (["--workload", "gemm", "--shape", "1,2"], "needs 3 sizes, M,K,N"),
        (["--workload", "mha", "--preset", "production"], "unknown for mha; choose from field"),
        (["--workload", "mha", "--preset", "field", "--shape", "1,2,3,4"], "--preset and --shape: give one of them"),
        (["--workload", "mha", "--contexts", "compile"], "--contexts: mha is measured plain"),
        (["--workload", "mha", "--batch", "2"], "--batch: only with --workload step"),
        (["--workload", "gemm", "--target", "a:b"], "--target: only with --workload step"),
        (["--workload", "gemm", "--rounds", "0"], "--rounds 0"),
        (["--workload", "mha", "--util-seconds", "nan"], "--util-seconds nan"),
    ],
)
def test_what_has_no_meaning_is_refused_in_one_line(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", *flags]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


def cells_of(text: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    document = json.loads(text)
    jsonschema.validate(document, run_schema())
    return {(cell["path"], cell["dtype"], cell["phase"]): cell for cell in document["cells"]}


def test_attention_whole(probe: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = probe(
        "--workload", "mha", "--paths", "flash,cudnn,math", "--dtype", "float32,bfloat16", "--phases", "fwd,fwdbwd",
        "--json",
    )  # fmt: skip
    cells = cells_of(out)
    assert code == 0
    assert len(cells) == 12
    assert cells["cudnn", "bfloat16", "fwd"]["status"] == "unavailable"
    assert "scaled_dot_product_attention" in cells["cudnn", "bfloat16", "fwd"]["error"]["text"]
    for path in ("flash", "math"):
        ran = cells[path, "float32", "fwdbwd"]
        assert ran["facts"]["error_l2"]["value"] < 1e-5
        assert ran["evidence"]["witnesses"][0]["says"] == path
        assert ran["evidence"]["verdict"] == "gate-only"
        assert ran["id"] == f"mha/{path}/plain/eager/fwdbwd/B1-H2-T48-D16/float32"
    run = str(tmp_path / "run")
    assert main(["report", run, "--check"]) == 0
    assert main(["report", run, "--html", "--out", str(tmp_path / "page.html")]) == 0
    capsys.readouterr()
    assert main(["report", run, "--tables", "field"]) == 0
    assert "| cudnn " in capsys.readouterr().out


def test_the_verdict_speaks_of_each_dtype(probe: Run) -> None:
    code, out = probe("--workload", "mha", "--paths", "math", "--dtype", "float32,bfloat16")
    assert code == 0
    assert "math float32: ran on the CPU" in out
    assert "math bfloat16: ran on the CPU" in out
    assert "--tables field" in out


def test_products_whole(probe: Run) -> None:
    before = torch.get_float32_matmul_precision()
    code, out = probe("--workload", "gemm", "--shape", "32,16,48", "--json")
    cells = cells_of(out)
    assert code == 0
    assert torch.get_float32_matmul_precision() == before
    assert {path for (path, _, _), cell in cells.items() if cell["status"] == "ok"} == {"fp32", "fp16", "bf16", "fp8"}
    assert cells["tf32", "float32", "fwd"]["error"]["text"].startswith("tf32 is a mode of NVIDIA's tensor cores")


def test_the_only_path_that_was_asked_for_is_not_there(probe: Run) -> None:
    code, out = probe("--workload", "mha", "--path", "cudnn", "--dtype", "float16")
    assert code == 5
    assert "No viable backend" in " ".join(out.split())
