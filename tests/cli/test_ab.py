"""`kdaprof ab` as a user calls it: the example, revisions of a real repository, stored evidence, bad input, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

sys.path.append(str(Path(__file__).parents[1] / "unit" / "ab"))
from ab_parts import GATE, HEAD, REPOSITORY, REVISIONS, SHAPES, PaperMachine, git, repository

from kdaprof.analysis.ab.document import ab_schema
from kdaprof.analysis.ab.rows import inverse, ratio_of
from kdaprof.analysis.recompute import recompute
from kdaprof.cli import ab_run
from kdaprof.cli.ab_example import EXAMPLE
from kdaprof.cli.main import main
from kdaprof.errors import Exit
from kdaprof.probe import real
from kdaprof.probe.ab import machine
from kdaprof.probe.ab.path_runs import evidence_of_run

ROOT = Path(__file__).parents[2]
CONTRACT = HEAD + REVISIONS + SHAPES + GATE + REPOSITORY


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a contract and its repository; the machine is on paper."""
    repository(tmp_path / "repo")
    (tmp_path / "contract.toml").write_text(CONTRACT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ab_run, "this_machine", lambda _device: PaperMachine())
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    code = main(["ab", *argv, "--json"])
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.validate(found, ab_schema())
    return code, found


def test_the_example_works_when_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (machine, real):  # nobody else's load is to be watched for a second each time
        monkeypatch.setattr(module, "BUSY_WINDOW_NS", 0)
    assert main(["ab", "--example"]) == Exit.OK
    Path("contract.toml").write_text(capsys.readouterr().out)
    code, found = document(capsys, "contract.toml", "--out", "out")
    verdicts = {gate["kind"]: gate["verdict"] for gate in found["gates"]}
    assert (verdicts["attempts"], verdicts["stage-share"], verdicts["correctness"]) == ("pass", "pass", "pass")
    assert [row["cell"] for row in found["rows"]] == ["public", "short"]
    assert all(row["base"]["n"] > 0 for row in found["rows"])
    if found["environment"]["gpu"] is None:  # times of the CPU are not speed: nothing is established
        assert (code, found["decision"]) == (Exit.INCONCLUSIVE, "not-established")
        assert all("Q08" in row["why"] for row in found["rows"])
    assert (tmp_path / "out/runs/public/run.json").exists()


def test_the_script_in_the_example_measures_what_the_command_of_a_revision_must(place: Path) -> None:
    lines = EXAMPLE.splitlines()
    begin = lines.index("#     import json, os, time")
    length = next(n for n, line in enumerate(lines[begin:]) if not line.startswith("#     "))
    assert length <= 10
    script = "\n".join(line.removeprefix("#     ") for line in lines[begin : begin + length])
    repo = place / "repo"
    (repo / "time_it.py").write_text(script)
    (repo / "mine.py").write_text("def step(shape):\n    return sum(range(2000 if shape == 'big' else 1000))\n")
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "-m", "script")
    (place / "c.toml").write_text(CONTRACT.replace('["sh", "measure.sh"]', '["{python}", "time_it.py"]'))
    code = main(["ab", "c.toml", "--base", "HEAD", "--cand", "HEAD", "--out", "out"])
    assert code in (Exit.REGRESSION, Exit.INCONCLUSIVE)  # the same code twice is never 1.1 times as fast
    rows = json.loads((place / "out/evidence.json").read_text())["shapes"]
    assert [len(rows[0][side]["rounds"]["4"]) for side in ("base", "cand")] == [4, 4]
    assert min(wall for row in rows for walls in row["cand"]["rounds"].values() for wall in walls) > 0


def test_two_revisions_come_to_a_go_with_everything_on_disk(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys, "contract.toml", "--out", "out")
    assert (code, found["decision"], found["complete"], found["attempt"]) == (Exit.OK, "go", True, 1)
    assert found["cand"] == {"name": "two", "commit": git(place / "repo", "rev-parse", "two")}
    row = found["rows"][0]
    assert row["speedup"]["value"] == pytest.approx(1.25, rel=1e-3)
    assert row["ratio"]["ci95"][0] < row["ratio"]["value"] < row["ratio"]["ci95"][1]
    assert row["verdict"] == "faster"
    assert row["base"]["p10"] <= row["base"]["value"] <= row["base"]["p90"]
    assert row["peak"]["change_bytes"] == -200_000
    assert json.loads((place / "out/ab.json").read_text()) == found
    assert (place / "out/contract.toml").read_text() == CONTRACT
    page = (place / "out/report.md").read_text()
    for text in (
        "# trial: two against one",
        "**GO**",
        "| big ",
        "−200,000 B, −20.00 %",
        found["cand"]["commit"],
        "H200",
    ):
        assert text in page
    assert len(list((place / ".kdaprof/ab/trial").glob("*.json"))) == 1


def test_stored_evidence_is_judged_again_without_measuring(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = document(capsys, "contract.toml", "--out", "out")
    (place / "strict.toml").write_text(CONTRACT.replace("min = 1.1", "min = 1.4"))
    code, again = document(capsys, "contract.toml", "--judge", "out")
    assert (code, again["rows"], again["source"]) == (Exit.OK, found["rows"], "out")
    code, strict = document(capsys, "strict.toml", "--judge", "out/evidence.json")
    assert (code, strict["decision"], strict["environment"]) == (Exit.REGRESSION, "no-go", None)


def test_a_stored_run_gives_a_stage_share_relative_to_the_contract(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["ab", "contract.toml", "--out", "out"])
    capsys.readouterr()
    (place / "h200-kda").symlink_to(ROOT / "reports/h200-kda")
    cell = "kda/fused/plain/eager/fwd/B10-T512-H12-K64-V64-C16/float32"
    share = f'[[gates]]\nkind = "stage-share"\nmin = 0.1\nrun = "h200-kda"\ncell = "{cell}"\nstages = [".*"]\n'
    (place / "share.toml").write_text(CONTRACT + share)
    monkeypatch.chdir("/")
    _, found = document(capsys, str(place / "share.toml"), "--judge", str(place / "out"))
    (gate,) = [gate for gate in found["gates"] if gate["kind"] == "stage-share"]
    assert gate["verdict"] == "pass"
    host_bound = recompute(ROOT / "reports/h200-kda").cell(cell).facts["host_bound"].value
    assert host_bound is not None
    assert gate["value"] == pytest.approx(1 - host_bound, abs=0.01)  # "the GPU waits … of a forward call"


def test_the_terminal_shows_table_gates_and_decision_in_words(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ab", "contract.toml", "--base", "two", "--cand", "one", "--out", "out"]) == Exit.REGRESSION
    out, err = capsys.readouterr()
    for text in (
        "trial: one against two",
        "base ms",
        "speedup [95 %]",
        "slower",
        "speedup of big",
        "NO-GO: speedup of big",
    ):
        assert text in out
    assert "\x1b" not in out
    assert "round 5 of 5" in err
    assert "results in out" in err


def test_a_failed_command_is_an_error_and_says_which_side(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "repo/broken").touch()
    git(place / "repo", "add", ".")
    git(place / "repo", "commit", "--quiet", "-m", "broken")
    code, found = document(capsys, "contract.toml", "--cand", "HEAD")
    assert (code, found["decision"]) == (Exit.ERROR, "not-established")
    assert found["errors"] == [
        f"cand on {shape}: the command ended with exit code 3: it is broken" for shape in ("big", "small")
    ]


def test_what_is_refused_before_anything_is_measured(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object, **__: object) -> None:
        raise AssertionError("went as far as measuring")

    monkeypatch.setattr(ab_run, "run_experiment", late)
    (place / "full").mkdir()
    (place / "full/file").touch()
    (place / "no-sides.toml").write_text(CONTRACT.replace('base = "one"\n', ""))
    paths = (
        HEAD
        + 'kind = "paths"\nbase = "tensor"\ncand = "fast"\n[[shapes]]\nname = "big"\nsize = "1,16,1,16,16"\n'
        + GATE
    )
    (place / "paths.toml").write_text(paths)
    for argv, says in (
        ([], "ab needs a CONTRACT"),
        (["absent.toml"], "absent.toml: cannot read"),
        (["no-sides.toml"], "--base: name it here or in the contract"),
        (["contract.toml", "--out", "full"], "--out full: not empty"),
        (["contract.toml", "--out", "contract.toml"], "is not a directory"),
        (["paths.toml"], "'fast' is unknown; choose from fused"),
        (["paths.toml", "--cand", "tensor"], "base and cand are both 'tensor'"),
        (["contract.toml", "--bass", "x"], "unrecognized arguments: --bass"),
    ):
        assert main(["ab", *argv]) == Exit.USAGE
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert says in err
    assert main(["ab", "contract.toml", "--judge", "full"]) == Exit.ERROR
    assert "evidence.json: cannot read" in capsys.readouterr().err


def test_force_replaces_an_experiment(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ab", "contract.toml", "--out", "out"]) == Exit.OK
    assert main(["ab", "contract.toml", "--out", "out"]) == Exit.USAGE
    capsys.readouterr()
    code, found = document(capsys, "contract.toml", "--out", "out", "--force")
    assert (code, found["attempt"]) == (Exit.OK, 2)


def test_paths_of_the_recorded_h200_run_give_the_speedup_that_the_readme_quotes() -> None:
    run = ROOT / "reports/h200-kda"
    found = inverse(ratio_of(evidence_of_run("production", run, ("tensor", "fused"), "fwd")))
    quoted = re.search(r"fused against tensor: ([0-9.]+) times", (ROOT / "README.md").read_text())
    assert quoted is not None
    assert found.interval is not None
    assert found.interval[0] < float(quoted[1]) < found.interval[1]
    assert found.value == pytest.approx(float(quoted[1]), rel=0.02)


def test_no_ratio_is_made_of_a_path_that_is_not_proven(tmp_path: Path) -> None:
    run = Path(shutil.copytree(ROOT / "reports/h200-kda", tmp_path / "run"))
    record = json.loads((run / "run.json").read_text())
    forward = ("tensor", "eager", "fwd")
    (cell,) = [c for c in record["cells"] if tuple(c["key"][of] for of in ("path", "mode", "phase")) == forward]
    cell["observed"]["declared"]["launches"] = [2, 3]  # as if a path of two launches had been promised
    (run / "run.json").write_text(json.dumps(record))
    unproven = ratio_of(evidence_of_run("production", run, ("tensor", "fused"), "fwd"))
    assert unproven.value is None
    assert "Q06" in (unproven.why or "")


def test_ctrl_c_ends_with_130_keeps_the_rounds_and_leaves_no_worktree(place: Path) -> None:
    with (place / "repo/measure.sh").open("a") as script:
        script.write('[ $KDAPROF_AB_ROUND = 1 ] && touch "$KDAPROF_TEST_MARK" && sleep 60\ntrue\n')
    git(place / "repo", "commit", "--quiet", "-am", "slow")
    mark = place / "mark"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            TAKES_INTERRUPTS,
            "ab",
            "contract.toml",
            "--base",
            "HEAD",
            "--cand",
            "HEAD",
            "--out",
            "out",
        ],
        env={**os.environ, "KDAPROF_TEST_MARK": str(mark)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    end = time.monotonic() + 60
    while not mark.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED, err.decode()
    assert b"interrupted" in out
    found = json.loads((place / "out/ab.json").read_text())
    jsonschema.validate(found, ab_schema())
    assert (found["complete"], found["decision"]) == (False, "not-established")
    assert sorted(json.loads((place / "out/evidence.json").read_text())["shapes"][0]["base"]["rounds"]) == ["0"]
    assert git(place / "repo", "worktree", "list").count("\n") == 0


# A shell starts background jobs deaf to Ctrl-C; the machine's conditions are not watched for a second each.
TAKES_INTERRUPTS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from kdaprof.cli.main import main
from kdaprof.probe.ab import machine
machine.BUSY_WINDOW_NS = 0
sys.exit(main(sys.argv[1:]))
"""
