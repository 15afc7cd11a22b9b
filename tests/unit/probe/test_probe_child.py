"""A child that ends in every way a process can end, and what the parent makes of it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from probe_parts import QUICK, spec

from kdaprof.probe import child, worker
from kdaprof.probe.child import ChildCell, ChildResult, ChildSpec, spawn
from kdaprof.runs.record import CellError
from kdaprof.workloads.op import CaseSpec

PROGRAM = """\
#!{python}
import json, os, signal, subprocess, sys, time
folder = sys.argv[3]
def leave(*cells):
    text = json.dumps({{"cells": [{{"cell": c}} for c in cells]}})
    open(os.path.join(folder, "result.json"), "w").write(text)
{body}
"""


def cases(*paths: str) -> tuple[CaseSpec, ...]:
    return tuple(spec(path) for path in paths)


def child_spec(out: Path, *paths: str, task: child.Task = "cold") -> ChildSpec:
    return ChildSpec(task=task, cases=cases(*paths), effort=QUICK, out=str(out))


@pytest.fixture
def as_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a few lines of Python stand in for the worker."""

    def install(body: str) -> None:
        program = tmp_path / "worker"
        program.write_text(PROGRAM.format(python=sys.executable, body=body))
        program.chmod(0o755)
        monkeypatch.setattr(child.sys, "executable", str(program))

    return install


def run(tmp_path: Path, timeout_s: float = 30, **env: str) -> ChildResult:
    return spawn(child_spec(tmp_path, "tensor"), env=env, timeout_s=timeout_s)


def gone(pid: int, within_s: float = 5) -> bool:
    """Ended; one that nobody has waited for yet counts."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_a_child_that_ends_well(tmp_path: Path, as_child: Callable[[str], None]) -> None:
    as_child("leave('a', 'b')")
    result = run(tmp_path)
    assert [c.cell for c in result.cells] == ["a", "b"]
    assert result.failure is None
    assert result.of("b") is result.cells[1]
    assert result.of("c") is None


def test_a_child_that_leaves_nothing(tmp_path: Path, as_child: Callable[[str], None]) -> None:
    as_child("pass")
    assert run(tmp_path) == ChildResult()


def test_a_child_that_dies_in_a_later_cell_leaves_the_earlier_ones(
    tmp_path: Path, as_child: Callable[[str], None]
) -> None:
    as_child("leave('a', 'b'); os.kill(os.getpid(), signal.SIGKILL)")
    result = run(tmp_path)
    assert [c.cell for c in result.cells] == ["a", "b"]
    assert result.failure == "the worker process ended with signal 9: no output"


def test_what_a_child_said_last_is_its_reason_in_one_line(tmp_path: Path, as_child: Callable[[str], None]) -> None:
    as_child("print('first'); print('CUDA error: ' + 'x' * 1000 + '\\n  \\n', file=sys.stderr); sys.exit(7)")
    result = run(tmp_path)
    assert result.cells == ()
    assert result.failure is not None
    assert result.failure.startswith("the worker process ended with exit code 7: CUDA error: xxx")
    assert "\n" not in result.failure
    assert len(result.failure) < 400


def test_output_that_is_no_text(tmp_path: Path, as_child: Callable[[str], None]) -> None:
    as_child("os.write(2, bytes(range(256))); sys.exit(1)")
    assert "exit code 1" in str(run(tmp_path).failure)


def test_a_child_over_its_time_is_ended_with_its_children(tmp_path: Path, as_child: Callable[[str], None]) -> None:
    pids = tmp_path / "pids"
    as_child(
        "leave('a'); p = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(pids)!r}, 'w').write(str(os.getpid()) + ' ' + str(p.pid))\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    )
    began = time.monotonic()
    result = run(tmp_path, timeout_s=1)
    assert time.monotonic() - began < 10
    assert [c.cell for c in result.cells] == ["a"]
    assert result.failure == "the worker process took longer than 1 s and was ended"
    parent, its_child = (int(pid) for pid in pids.read_text().split())
    assert gone(parent)
    assert gone(its_child)


def test_ctrl_c_in_the_parent_ends_the_child(tmp_path: Path, as_child: Callable[[str], None]) -> None:
    as_child(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)")

    def press(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, press)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_child_gets_its_variables_its_own_session_and_no_input(
    tmp_path: Path, as_child: Callable[[str], None]
) -> None:
    as_child("leave(os.environ['TRITON_INTERPRET'], str(os.getsid(0) == os.getpid()), repr(sys.stdin.read()))")
    assert [c.cell for c in run(tmp_path, TRITON_INTERPRET="1").cells] == ["1", "True", "''"]
    assert "TRITON_INTERPRET" not in os.environ


def test_nothing_of_a_child_is_left_behind(
    tmp_path: Path, as_child: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child.tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    as_child("leave('a')")
    run(tmp_path)
    assert list((tmp_path / "scratch").iterdir()) == []


# ---------------------------------------------------------------- the worker itself


def result_of(folder: Path) -> ChildResult:
    return msgspec.json.decode((folder / child.RESULT_FILE).read_bytes(), type=ChildResult)


def start(folder: Path, *paths: str) -> ChildSpec:
    asked = child_spec(folder, *paths)
    (folder / child.SPEC_FILE).write_bytes(msgspec.json.encode(asked))
    return asked


def test_a_specification_comes_back_equal(tmp_path: Path) -> None:
    asked = start(tmp_path, "tensor", "reference")
    assert msgspec.json.decode((tmp_path / child.SPEC_FILE).read_bytes(), type=ChildSpec) == asked


def test_a_failing_cell_is_an_error_in_its_own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = start(tmp_path, "tensor", "reference", "tensor-rows")

    def work(case: CaseSpec, _spec: ChildSpec) -> ChildCell:
        if case.key.path == "reference":
            raise ValueError("this one\n\nis broken")
        return ChildCell(cell=case.key.id)

    monkeypatch.setattr(worker, "_task", lambda _task: work)
    assert worker.main(tmp_path) == 0
    cells = result_of(tmp_path).cells
    assert [c.cell for c in cells] == [case.key.id for case in asked.cases]
    assert [c.error for c in cells] == [None, CellError(type="ValueError", text="this one · is broken"), None]


def test_results_are_on_disk_after_every_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(tmp_path, "tensor", "reference")

    def work(case: CaseSpec, _spec: ChildSpec) -> ChildCell:
        if case.key.path == "reference":
            assert len(result_of(tmp_path).cells) == 1
            raise SystemExit(9)
        return ChildCell(cell=case.key.id)

    monkeypatch.setattr(worker, "_task", lambda _task: work)
    with pytest.raises(SystemExit):
        worker.main(tmp_path)
    assert [c.cell for c in result_of(tmp_path).cells] == [spec("tensor").key.id]


@pytest.mark.parametrize(
    ("task", "name"), [("profile", "profile_cell"), ("cold", "cold_cell"), ("interpret", "interpret_cell")]
)
def test_each_task_has_its_work(task: child.Task, name: str) -> None:
    assert worker._task(task).__name__ == name


def test_a_real_child_times_first_calls_and_goes_on_past_a_path_that_cannot_run(tmp_path: Path) -> None:
    asked = child_spec(tmp_path, "tensor", "fused", "reference")
    result = spawn(asked, env={"TRITON_INTERPRET": "0"}, timeout_s=120)
    assert result.failure is None
    tensor, fused, reference = result.cells
    for cell in (tensor, reference):
        (sample,) = cell.samples
        assert (sample.repeat, sample.index, sample.cell) == ("cold", 0, cell.cell)
        assert sample.wall_ns is not None
        assert sample.host_ns is not None
        assert 0 < sample.host_ns <= sample.wall_ns
    assert fused.samples == ()
    assert fused.error is not None
    assert fused.error.type == "UnavailableError"
    assert "fused" in fused.error.text
