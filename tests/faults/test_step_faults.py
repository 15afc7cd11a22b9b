"""A probed step, a sweep and a watched loop that are ended from outside, or whose output cannot be written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import finished_cells, running, until

from kdaprof.analysis.recompute import load_raw
from kdaprof.cli.main import main

STEP = ("probe", "--workload", "step", "--path", "tensor", "--contexts", "plain,autocast", "--modes", "eager")
SWEEP = ("sweep", "--over", "batch=1,2,3,4", "--path", "tensor")
SHORT = ("--device", "cpu", "--rounds", "2", "--samples", "2")
LONG = ("--device", "cpu", "--rounds", "12", "--samples", "8")


@pytest.mark.parametrize("argv", [STEP, SWEEP])
def test_ctrl_c_keeps_the_steps_that_are_whole(
    tmp_path: Path, argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "kdaprof", *argv, *LONG, "--out", "run", "--store", "store"]
    with running(command, cwd=tmp_path) as process:
        until(process, lambda: finished_cells(run) > 0)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    raw = load_raw(run)
    assert not raw.record.complete
    assert "partial" in (run / "report.md").read_text(encoding="utf-8").lower()
    kept = [cell.id for cell in raw.record.cells if cell.status == "ok"]
    assert kept
    assert all(raw.samples[cell] for cell in kept)
    assert len(kept) < len(raw.record.cells)
    capsys.readouterr()
    assert main(["report", str(run)]) == 0


LOOP = """
import signal, sys, time
from kdaprof import StepProfiler
from kdaprof.integrations.steps import WindowPlan, profiler
def slow(self, **_):
    print("closing")
    time.sleep(600)
profiler.LoopRun.close = slow
plan = WindowPlan(most=0)
with StepProfiler("run", shape={"B": 1}, device="cpu", windows=plan, live=print, live_seconds=0.2) as prof:
    while True:
        with prof.step(), prof.phase("fwd"):
            time.sleep(0.002)
"""


def test_a_second_ctrl_c_ends_a_loop_whose_profiler_does_not(tmp_path: Path) -> None:
    with running([sys.executable, "-u", "-c", LOOP], cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("step ")
        process.send_signal(signal.SIGINT)
        while process.stdout.readline() != "closing\n":
            assert process.poll() is None
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(20)
        assert time.monotonic() - began < 5
    assert process.returncode != 0
    assert not load_raw(tmp_path / "run").record.complete


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_sweep_whose_output_cannot_be_written_keeps_its_run(tmp_path: Path) -> None:
    argv = ("sweep", "--over", "batch=1,2", "--path", "tensor", *SHORT, "--out", "run", "--store", "store")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kdaprof", *argv, "--json"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode == 1
    assert done.stderr.rstrip("\n").splitlines()[-1].startswith("kdaprof: cannot write the output")
    assert "Traceback" not in done.stderr
    assert load_raw(tmp_path / "run").record.complete
    assert json.loads((tmp_path / "run" / "sweep.json").read_text())["schema"] == "kdaprof.sweep/1"


@pytest.mark.parametrize("out", ["/dev/full", "/dev/null/run", "file"])
def test_a_target_that_takes_no_run_is_refused_before_anything_is_measured(
    tmp_path: Path, out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    for argv in (STEP, SWEEP):
        assert main([*argv, *SHORT, "--out", out, "--store", "store"]) in (1, 2)
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        assert told.startswith("kdaprof: ")
    assert (tmp_path / "file").read_text() == "mine"
