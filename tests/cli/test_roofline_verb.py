"""`kdaprof roofline` as a user calls it: under declared ceilings, a stored run's, or none."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kdaprof.analysis.roofline_document import roofline_schema
from kdaprof.cli import standing
from kdaprof.cli.main import main
from kdaprof.errors import Exit
from kdaprof.runs.place import find_store

ROOT = Path(__file__).parents[2]
RUN = str(ROOT / "reports" / "h200-kda")
REPORTED = ("--bandwidth", "1792e9", "--rate", "43.7e12")


@pytest.fixture(autouse=True, scope="module")
def derived_once() -> Iterator[None]:
    """The stored run is derived once for all tests here: it takes seconds, and another test's business."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standing, "load_standing", functools.cache(standing.load_standing))
        yield


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["roofline", "--json", *words]) == Exit.OK
    out, err = capsys.readouterr()
    assert not err
    found: dict[str, Any] = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.validate(found, roofline_schema())
    return found


def test_the_field_reports_roofline_from_its_listed_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--bytes", "field-report", *REPORTED)
    (base,) = found["bases"]
    assert round(base["floor_ns"]["value"] / 1e6, 3) == 0.386
    assert round(base["intensity"], 1) == 3.1
    assert base["bound"] == "memory"
    assert [reason["rule"] for reason in base["floor_ns"]["reasons"]] == ["Q11"]
    (listing,) = found["tensors"]
    assert len(listing["tensors"]) == 23
    assert listing["times"] * sum(tensor["moved_bytes"] for tensor in listing["tensors"]) == base["bytes"]
    assert {ceiling["provenance"] for ceiling in found["ceilings"]} == {"declared"}
    smaller = document(capsys, "--bytes", "field-report", "--shape", "5,512,12,64,64", *REPORTED)
    assert 2 * smaller["bases"][0]["bytes"] == base["bytes"]


def test_compulsory_bytes_are_compute_bound_there(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--bytes", "compulsory", *REPORTED)
    assert {base["bound"] for base in found["bases"]} == {"compute"}
    assert found["bytes"]["compulsory"]["fwd"] == 78_888_960
    assert found["flops"]["fwd"] == 2_154_823_680
    assert found["serial"]["programs"] == 120
    assert found["serial"]["sms"] is None


def test_a_stored_runs_ceilings_and_calls(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "roofline.svg"
    found = document(capsys, "--run", RUN, "--svg", str(picture))
    assert found["card"] == "NVIDIA H200"
    assert found["serial"]["sms"] == 132
    bases = {(base["name"], base["path"], base["phase"]): base for base in found["bases"]}
    fused = bases["compulsory", "fused", "fwd"]
    stored = standing.load_standing(Path(RUN), find_store(None, Path.cwd()))[1].cell(fused["cell"]).facts
    assert fused["floor_ns"]["value"] == stored["floor_ns"].value
    assert fused["floor_share"]["value"] == pytest.approx(stored["floor_share"].value)
    assert fused["floor_ns"]["quotable"]
    assert bases["path", "fused", "fwd"]["floor_ns"]["value"] > fused["floor_ns"]["value"]
    drawn = ET.parse(picture)
    text = " ".join(drawn.getroot().itertext())
    assert "NVIDIA H200" in text
    assert "fused fwd, compulsory" in text
    assert "matmul_tf32x3" in text
    document(capsys, "--run", RUN, "--svg", str(picture))  # its own picture is replaced
    mine = tmp_path / "thesis.tex"
    mine.write_text("mine")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place, says in ((mine, "is no picture of kdaprof"), (pipe, "no picture"), (tmp_path, "directory")):
        assert main(["roofline", "--run", RUN, "--svg", str(place)]) == Exit.USAGE
        assert says in capsys.readouterr().err
    assert mine.read_text() == "mine"


def test_a_runs_own_paths_stand_where_none_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--run", RUN, "--chunk", "16", "--bytes", "compulsory")
    assert list(dict.fromkeys(base["path"] for base in found["bases"])) == [
        "fused",
        "tensor",
        "tensor-rows",
        "compiled",
    ]
    assert all(base["cell"] for base in found["bases"])


def test_a_peer_has_the_bytes_of_the_op_and_what_it_does_not_compute_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = document(capsys, "--paths", "flashkda,fla", "--dtype", "bfloat16", *REPORTED)
    bases = {(base["name"], base["path"], base["phase"]): base for base in found["bases"]}
    assert bases["compulsory", "fla", "bwd"]["bytes"] == found["bytes"]["compulsory"]["bwd"]
    assert bases["compulsory", "fla", "fwd"]["rate"] == "matmul_bfloat16"
    assert bases["compulsory", "flashkda", "fwd"]["floor_ns"]["value"]
    assert bases["compulsory", "flashkda", "bwd"]["bytes"] is None
    assert bases["compulsory", "flashkda", "bwd"]["floor_ns"]["detail"] == "path 'flashkda' has no backward"
    listings = {(listing["basis"], listing["phase"]): listing for listing in found["tensors"]}
    assert listings["compulsory", "bwd"]["tensors"]
    in_float32 = document(capsys, "--paths", "flashkda", *REPORTED)
    assert in_float32["bases"][0]["floor_ns"]["detail"] == "path 'flashkda' takes bfloat16, not float32"


def test_a_faster_call_than_its_declared_floor_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """The report's card under its true bandwidth: a call beats the floor, so the floor is wrong."""
    found = document(capsys, "--run", RUN, "--paths", "fused", "--bytes", "compulsory", "--bandwidth", "4e11")
    assert {finding["id"] for finding in found["findings"]} == {"faster-than-floor"}
    assert main(["roofline", "--run", RUN, "--paths", "fused", "--bytes", "compulsory", "--bandwidth", "4e11"]) == 0
    out = capsys.readouterr().out
    assert "(Q10)" in out
    assert "--bandwidth" in out


def test_without_a_card_the_rest_stands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = document(capsys, "--no-measure")
    assert found["ceilings"] == []
    assert found["ceilings_missing"].startswith("--no-measure")
    assert all(base["floor_ns"]["value"] is None and base["floor_ns"]["detail"] for base in found["bases"])
    assert found["flops"]["bwd"] == 4_341_104_640
    assert main(["roofline", "--no-measure", "--svg", str(tmp_path / "x.svg")]) == Exit.OK
    out, err = capsys.readouterr()
    assert "no ceilings" in out
    assert "no picture" in err
    assert not (tmp_path / "x.svg").exists()


def test_people_read_lines_that_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "--run", RUN, "--tensors"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("fused fwd") and "µs" in line for line in lines)
    assert not any("…" in line for line in lines)
    assert any(line.startswith("Serial chain: 120 programs") for line in lines)


@pytest.mark.parametrize(
    "words",
    [
        ["--bytes", "guess"],
        ["--bytes", ","],
        ["--paths", "fast"],
        ["--phases", "opt"],
        ["--dtype", "int8"],
        ["--rate", "0"],
        ["--bandwidth", "nan"],
        ["--bandwidth", "1e-300", "--rate", "1e-300"],
        ["--sms", "0"],
        ["--chunk", "0"],
        ["--shape", "1,2"],
        ["--run", RUN, "--shape", "1,2,3,4,5"],
        ["--run", RUN, "--chunk", "32"],
        ["x"],
    ],
)
def test_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", *words]) == Exit.USAGE
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["roofline", "--run", str(tmp_path / "absent")]) == Exit.ERROR
    assert capsys.readouterr().err.count("\n") == 1


def test_declared_ceilings_need_no_torch() -> None:
    script = (
        "import sys; from kdaprof.cli.main import main; "
        f"code = main(['roofline', *{REPORTED!r}]); sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
