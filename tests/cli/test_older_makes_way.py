"""With --force what an older run of the verb left is gone before the new one begins, which may be killed then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fake_driver import machine

sys.path.append(str(Path(__file__).parents[1] / "unit" / "ab"))
from ab_parts import GATE, HEAD, REPOSITORY, REVISIONS, SHAPES, TARGETS, PaperMachine, git, repository

from kdaprof.cli import ab_run, roofline
from kdaprof.cli.main import main
from kdaprof.errors import Exit
from kdaprof.runs.watch import read_watch

CARD = "FakeCard('GPU-aaaa', '00000000:01:00.0')"
SHORT_PARTS = """\
    from kdaprof.instruments.watch.spool import Spool
    Spool.__init__.__kwdefaults__["part_ns"] = 100_000_000
"""
NAP = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(float(sys.argv[2]))"


def kdaprof(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "kdaprof", *words]
    return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


def killed(folder: Path, words: Sequence[str], far: Callable[[], bool], env: dict[str, str] | None = None) -> None:
    """The command with all that it started, ended by SIGKILL as soon as it has come so far."""
    line = [sys.executable, "-m", "kdaprof", *words]
    with subprocess.Popen(line, cwd=folder, env=env, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            until = time.monotonic() + 30
            while not far() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            assert far()
            assert process.poll() is None
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_killed_watch_is_read_and_not_the_older_one(tmp_path: Path) -> None:
    env = machine(tmp_path, CARD, script=SHORT_PARTS)
    out = tmp_path / "out"
    assert kdaprof(tmp_path, "gpu-util", "--hz", "20", "--duration", "0.3", "--out", "out", env=env).returncode == 0
    whole = names(out)
    (out / "notes.txt").write_text("mine")
    (out / ".gpu_util.csv.x1.tmp").write_text("half a file")
    parts = out / ".gpu_util.parquet.parts"
    again = ["gpu-util", "--hz", "100", "--out", "out", "--force"]
    killed(tmp_path, again, lambda: len(list(parts.glob("part-*"))) >= 8, env)  # more than the third will have
    left = {path.name for path in out.iterdir()}
    assert left == {"notes.txt", parts.name}
    read = kdaprof(tmp_path, "gpu-util", "--read", "out", "--json", env=env)
    seen = json.loads(read.stdout)
    assert (seen["hz"], seen["complete"]) == (100, False)
    assert any("ended from outside" in note for note in seen["notes"])
    (parts / "mine.txt").write_text("mine")
    third = kdaprof(tmp_path, "gpu-util", "--hz", "20", "--duration", "0.3", "--out", "out", "--force", env=env)
    assert third.returncode == 0, third.stderr
    assert names(out) == whole | {"notes.txt", f"{parts.name}/mine.txt"}
    times = pq.read_table(out / "gpu_util.parquet").column("t_ns").to_pylist()
    assert min(times) >= read_watch(out).started_monotonic_ns


@pytest.mark.parametrize("verb", ["gpu-util", "stacks"])
def test_a_process_that_is_not_there_costs_nothing_older(verb: str, tmp_path: Path) -> None:
    env = machine(tmp_path, CARD)
    older = [tmp_path / "out" / name for name in ("gpu-util.json", "stacks.json", "report.md")]
    older[0].parent.mkdir()
    for file in older:
        file.write_text("older")
    done = kdaprof(tmp_path, verb, "--pid", str(2**22 + 1), "--out", "out", "--force", env=env)
    assert (done.returncode, done.stderr.count("\n")) == (Exit.USAGE, 1)
    assert "no such process" in done.stderr
    assert [file.read_text() for file in older] == ["older"] * 3


def test_a_killed_recording_of_stacks_leaves_nothing_that_passes_for_it(tmp_path: Path) -> None:
    out, mark = tmp_path / "out", tmp_path / "begun"
    nap = ["--", sys.executable, "-S", "-c", NAP, str(mark)]
    assert kdaprof(tmp_path, "stacks", "--out", "out", *nap, "0.8").returncode == 0
    assert {"stacks.json", "stacks.svg", "stacks.chrometrace.json.gz"} < names(out)
    (out / "stacks_holds.parquet").write_text("of native stacks")
    (out / "notes.txt").write_text("mine")
    mark.unlink()
    killed(tmp_path, ["stacks", "--out", "out", "--force", *nap, "60"], mark.exists)
    assert names(out) == {"notes.txt"}


def test_a_recording_without_stacks_has_no_picture_of_the_older_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert (
        kdaprof(tmp_path, "stacks", "--out", "out", "--", sys.executable, "-S", "-c", NAP, "x", "0.8").returncode == 0
    )
    done = kdaprof(tmp_path, "stacks", "--out", "out", "--force", "--", "sh", "-c", "sleep 0.5")
    assert done.returncode == 0
    assert names(out) == {"stacks.json", "report.md"}


def test_a_killed_probe_leaves_no_watch_and_no_stacks_that_pass_for_its_own(tmp_path: Path) -> None:
    out = tmp_path / "out"
    older = {"gpu-util.json", "gpu_util.csv", "gpu_util.svg", "stacks-tensor/stacks.json", "sweep.json"}
    for name in older:
        file = out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("older")
    (out / "stacks-fused").mkdir()
    (out / "stacks-fused" / "mine.txt").write_text("kept")
    line = ["probe", "--path", "tensor", "--device", "cpu", "--stacks", "--out", "out", "--force"]
    killed(tmp_path, line, (out / "run.json").exists)
    assert not older & names(out)
    assert [folder.name for folder in out.glob("stacks-*")] == ["stacks-fused"], (
        "an empty one says that stacks are there"
    )


@pytest.mark.parametrize(
    ("verb", "left"),
    [
        ("nsys", ("report.nsys-rep", "report.sqlite", "report.qdstrm", "analysis.json", "report.md")),
        ("ncu", ("ncu.csv",)),
    ],
)
def test_a_killed_nsight_leaves_nothing_that_passes_for_it(verb: str, left: Sequence[str], tmp_path: Path) -> None:
    tool, mark, out = tmp_path / "tool", tmp_path / "begun", tmp_path / "out"
    tool.write_text(f"#!/bin/sh\ntouch {mark}\nsleep 60\n")
    tool.chmod(0o755)
    out.mkdir()
    for name in (*left, "notes.txt"):
        (out / name).write_text("older")
    env = {**os.environ, f"KDAPROF_{verb.upper()}": str(tool)}
    killed(tmp_path, [verb, "--out", "out", "--force", "--", "true"], mark.exists, env)
    assert names(out) == {"notes.txt"}


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an older experiment in `out`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ab_run, "this_machine", lambda _device: PaperMachine())
    for name in (
        "evidence.json",
        "ab.json",
        "report.md",
        "logs/base.log",
        "logs/cand.log",
        "logs/cand-gone.log",
        "notes.txt",
    ):
        file = tmp_path / "out" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("older")
    return tmp_path / "out"


def test_a_killed_experiment_leaves_nothing_that_passes_for_it(experiment: Path) -> None:
    place = experiment.parent
    mark, over = place / "mark", place / "over"
    repo = repository(place / "repo")
    with (repo / "measure.sh").open("a") as script:  # in a session of its own: it waits for us, not for its parent
        script.write(f"touch {mark}; while [ ! -e {over} ]; do sleep 0.05; done\n")
    git(repo, "commit", "--quiet", "-am", "slow")
    (place / "contract.toml").write_text(HEAD + REVISIONS + SHAPES + GATE + REPOSITORY)
    try:
        words = ["ab", "contract.toml", "--base", "HEAD", "--cand", "HEAD", "--out", "out", "--force"]
        killed(place, words, mark.exists)
    finally:
        over.touch()
    logs = {name for name in names(experiment) if name.startswith("logs/")}
    assert names(experiment) - logs == {"contract.toml", "notes.txt"}
    assert len(logs) == 1  # of the side that went first
    assert "older" not in (experiment / logs.pop()).read_text()


@pytest.mark.parametrize("kind", ["revisions", "targets"])
def test_a_mistyped_side_costs_no_older_experiment(
    kind: str, experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository(experiment.parent / "repo")
    body = REVISIONS + SHAPES + GATE + REPOSITORY if kind == "revisions" else TARGETS + SHAPES + GATE
    Path("contract.toml").write_text(HEAD + body)
    assert main(["ab", "contract.toml", "--cand", "tow", "--out", "out", "--force"]) == Exit.USAGE
    err = capsys.readouterr().err
    assert err.startswith("kdaprof: 'tow'")
    assert err.count("\n") == 1
    assert {(experiment / name).read_text() for name in names(experiment)} == {"older"}


def test_what_an_experiment_needs_and_cannot_read_costs_no_older_one(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contract, store = Path("contract.toml"), Path("store")
    share = '[[gates]]\nkind = "stage-share"\nrun = "gone"\ncell = "a"\nstages = ["b"]\nmin = 0.2\n'
    line = ["ab", "contract.toml", "--out", "out", "--force", "--store", "store"]
    contract.write_text(HEAD + TARGETS + SHAPES + share + GATE)
    assert main(line) == Exit.ERROR
    assert "gone: no such run directory" in capsys.readouterr().err
    contract.write_text(HEAD + TARGETS + SHAPES + GATE)
    (store / "ab/trial").mkdir(parents=True)
    (store / "ab/trial/1.json").write_text("{")
    assert main(line) == Exit.ERROR
    assert "1.json" in capsys.readouterr().err
    assert {(experiment / name).read_text() for name in names(experiment)} == {"older"}


def test_an_experiment_begins_without_the_older_runs_of_its_shapes(
    experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ab_run, "run_experiment", ended)
    for name in ("big/run.json", "big/facts.json", "big/notes.txt", "another/run.json"):
        file = experiment / "runs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("older")
    shapes = '[[shapes]]\nname = "big"\nsize = "1,16,1,16,16"\n'
    contract = experiment.parent / "contract.toml"
    contract.write_text(HEAD + 'kind = "paths"\nbase = "tensor"\ncand = "reference"\n' + shapes + GATE)
    assert main(["ab", str(contract), "--out", "out", "--force"]) == Exit.INTERRUPTED
    assert names(experiment / "runs") == {"big/notes.txt", "another/run.json"}


def test_a_roofline_without_a_picture_says_that_the_older_one_is_still_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "roofline.svg"
    assert roofline.run(["--no-measure", "--svg", str(picture)]) == Exit.OK
    assert "picture of before" not in capsys.readouterr().err
    picture.write_text("<svg xmlns=older")
    assert roofline.run(["--no-measure", "--svg", str(picture)]) == Exit.OK
    assert capsys.readouterr().err.endswith(f"; {picture} is still the picture of before\n")
