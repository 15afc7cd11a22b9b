"""`kdaprof compare` on stored runs: ratios with intervals, what differs named first, exit codes, the document."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import scenes
from stored_runs import CELL, MS, fails_in_one_line, stored

from kdaprof.cli.main import main
from kdaprof.report.compare import compare_schema
from kdaprof.runs.environment import GpuHardware, Version


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    stored(folder, "base", wall_ns=100 * MS)
    for name, wall in (("same", 100), ("faster", 80), ("slower", 120), ("a-bit-slower", 103)):
        stored(folder, name, wall_ns=wall * MS, day=1)
    stored(folder, "three-rounds", wall_ns=100 * MS, day=1, rounds=3)
    return folder


def compared(capsys: pytest.CaptureFixture[str], runs: Path, cand: str, *flags: str) -> tuple[int, dict[str, Any]]:
    argv = ["compare", str(runs / "base"), str(runs / cand), "--json", "--store", str(runs / "store"), *flags]
    code = main(argv)
    out, err = capsys.readouterr()
    assert err == ""
    document: dict[str, Any] = json.loads(out, parse_constant=pytest.fail)
    jsonschema.Draft202012Validator(compare_schema()).validate(document)
    return code, document


@pytest.mark.parametrize(
    ("cand", "flags", "code", "verdict", "gate", "decision"),
    [
        ("same", [], 0, "same", "pass", "go"),
        ("faster", [], 0, "faster", "pass", "go"),
        ("slower", [], 3, "slower", "fail", "no-go"),
        ("slower", ["--threshold", "0.25"], 0, "slower", "pass", "go"),
        ("a-bit-slower", [], 0, "slower", "pass", "go"),
        ("a-bit-slower", ["--threshold", "0.01"], 3, "slower", "fail", "no-go"),
        ("a-bit-slower", ["--threshold", "0.03"], 4, "slower", "not-established", "not-established"),
    ],
)
def test_verdict_gate_and_exit_code(
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    cand: str,
    flags: list[str],
    code: int,
    verdict: str,
    gate: str,
    decision: str,
) -> None:
    got, document = compared(capsys, runs, cand, *flags)
    (row,), (one,) = document["rows"], document["gates"]
    assert (got, row["verdict"], one["verdict"], document["decision"]) == (code, verdict, gate, decision)
    assert row["cell"] == CELL
    low, high = row["ratio"]["ci95"]
    assert low < row["ratio"]["value"] < high
    assert row["ratio"]["value"] == pytest.approx(row["cand"]["value"] / row["base"]["value"], rel=0.01)


def test_three_rounds_establish_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = compared(capsys, runs, "three-rounds")
    assert (code, document["decision"]) == (4, "not-established")
    assert document["rows"][0]["rounds"] == {"base": 5, "cand": 3}
    assert "verdict" in document["rows"][0]["why"]


def test_every_figure_that_a_ratio_can_be_made_of(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = "wall_ns,host_ns,gpu_span_ns,gpu_busy_ns,pipelined_ns"
    _, document = compared(capsys, runs, "same", "--fact", names)
    assert [row["fact"] for row in document["rows"]] == names.split(",")
    assert all(row["ratio"]["value"] == pytest.approx(1) for row in document["rows"])


def test_what_differs_is_named_before_any_ratio(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = scenes.environment()
    other = replace(
        env,
        gpu=GpuHardware("NVIDIA B300", "GPU-9", None, "10.3", 148, 100 << 20, 280 << 30),
        versions=(Version("python", "3.11.7", None), Version("torch", "2.13.0", None)),
        git_commit="ffff",
        cwd="/srv",
    )
    slow_clock = scenes.snapshot(gpu=scenes.gpu_conditions(sm_clock_hz=1_200_000_000, power_limit_w=500.0))
    conditions = replace(scenes.conditions(), before=slow_clock, during=(slow_clock,))
    stored(tmp_path, "other", wall_ns=80 * MS, environment=other, conditions=conditions)
    code, document = compared(capsys, runs, str(tmp_path / "other"))
    named = {one["what"]: (one["base"], one["cand"]) for one in document["differences"]}
    assert named == {
        "GPU": ("NVIDIA H200", "NVIDIA B300"),
        "torch": ("2.11.0", "2.13.0"),
        "SM clock": ("1.98 GHz", "1.20 GHz"),
        "power limit": ("700 W", "500 W"),
        "commit": ("abc1234def56", "ffff"),
    }
    assert main(["compare", str(runs / "base"), str(tmp_path / "other"), "--store", str(tmp_path / "s")]) == code
    out = capsys.readouterr().out
    assert out.index("the runs differ in") < out.index("base → candidate")


def test_other_shapes_and_cache_policies(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from test_report_verb import store

    key = scenes.key(sizes=(1, 64, 2, 16, 16, 16))
    raw = scenes.raw(scenes.scene(cell_key=key, cache="warm"), environment=replace(scenes.environment(), cwd="/srv"))
    store(tmp_path / "small", raw)
    code, document = compared(capsys, runs, str(tmp_path / "small"))
    assert code == 4
    assert document["rows"] == []
    assert document["unmatched"] == {"base": [CELL], "cand": [key.id]}
    named = {one["what"]: one["cand"] for one in document["differences"]}
    assert named["cache policy"] == "warm"
    assert named["shapes"] == "kda B1-T64-H2-K16-V16-C16 float32"


def test_several_shapes_of_a_call_have_a_geometric_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from test_report_verb import store

    def both(first: int, second: int) -> Any:
        sizes = ((scenes.key(), first), (scenes.key(sizes=(1, 64, 2, 16, 16, 16)), second))
        made = [scenes.scene(cell_key=k, wall_ns=w, profiled_wall_ns=w, warm=(20 * w, *[w] * 4)) for k, w in sizes]
        return scenes.raw(*made, environment=replace(scenes.environment(), cwd="/srv"))

    store(tmp_path / "one", both(100 * MS, 50 * MS))
    store(tmp_path / "two", both(50 * MS, 50 * MS))
    argv = ["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--store", str(tmp_path / "s")]
    assert main([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(compare_schema()).validate(document)
    (mean,) = document["means"]
    assert mean["ratio"]["value"] == pytest.approx(0.5**0.5, rel=0.01)
    assert mean["ratio"]["ci95"][0] < mean["ratio"]["value"] < mean["ratio"]["ci95"][1]
    assert (mean["verdict"], len(mean["shapes"]), "/*/" in mean["cell"]) == ("faster", 2, True)
    assert main(argv) == 0
    assert "geometric mean of wall over 2 shapes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("base", "cand", "code", "gates"),
    [("good", "bad", 4, ["not-established"]), ("bad", "good", 4, []), ("bad", "bad", 4, [])],
)
def test_no_ratio_from_a_refused_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], base: str, cand: str, code: int, gates: list[str]
) -> None:
    """A figure that the base had and the candidate lost keeps the answer open; one it never had is no question."""
    from test_report_verb import store

    wrong = replace(scenes.good_check(), passed=False)
    for name, check in (("good", scenes.good_check()), ("bad", wrong)):
        store(tmp_path / name, scenes.raw(scenes.scene(check=check), run=name))
    argv = ["compare", str(tmp_path / base), str(tmp_path / cand), "--json", "--store", str(tmp_path / "s")]
    assert main(argv) == code
    document = json.loads(capsys.readouterr().out)
    (row,) = document["rows"]
    assert row["ratio"] == {"value": None, "ci95": None}
    assert "refused by Q09" in row["why"]
    assert [gate["verdict"] for gate in document["gates"]] == gates


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["base"], 2, "required: CAND"),
        (["base", "same", "--threshold", "-1"], 2, "--threshold -1"),
        (["base", "same", "--threshold", "nan"], 2, "--threshold nan"),
        (["base", "same", "--fact", "launches"], 2, "a ratio can be made of wall_ns"),
        (["base", "same", "--fact", ","], 2, "a ratio can be made of"),
        (["base", "none"], 1, "none: no such run directory"),
    ],
)
def test_bad_usage_is_one_line(
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    code: int,
    says: str,
) -> None:
    monkeypatch.chdir(runs)
    fails_in_one_line(capsys, ["compare", *argv], code, says)


def test_a_run_against_itself_is_called_that(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs / "base"), str(runs / "base"), "--store", str(runs / "store")]) == 0
    assert "are the same run" in capsys.readouterr().out
