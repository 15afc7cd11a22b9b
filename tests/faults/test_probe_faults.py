"""A probe that is ended from outside: killed, interrupted once or twice, or out of room (cases 38, 39)."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from processes import finished_cells, running, until

from kdaprof.cli.main import main
from kdaprof.probe import real
from kdaprof.runs import atomic
from kdaprof.runs.store import StoredRun, read_run

# Two cells are there after a few seconds, all of them after half a minute: a host that stands still for a while between
# a sign and the signal that it calls for still meets the probe in the middle.
LONG = ("--paths", "tensor,reference", "--shape", "1,64,1,16,16", "--phases", "fwd,bwd,fwdbwd", "--modes", "eager")
LONG += ("--contexts", "plain,checkpoint,partial-grad,non-contiguous")
ENOUGH = ("--rounds", "15", "--samples", "20", "--device", "cpu")


def into(out: Path) -> tuple[str, ...]:
    """The run goes to `out`, and into a history beside it instead of the project's."""
    return ("--out", str(out), "--store", str(out.parent / "store"))


def probing(out: Path, *argv: str, **more: Any) -> AbstractContextManager[subprocess.Popen[str]]:
    """A real probe in a process of its own."""
    return running([sys.executable, "-m", "kdaprof", "probe", *argv, *into(out)], **more)


def has_samples(out: Path) -> bool:
    return any((out / "samples.parquet").glob("[!.]*.parquet"))


def finished(stored: StoredRun) -> list[str]:
    return [cell.id for cell in stored.record.cells if cell.status == "ok"]


def reported(out: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["report", str(out), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out, parse_constant=pytest.fail))


# ---------------------------------------------------------------- killed


def test_a_kill_after_cell_k_leaves_k_readable_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    with probing(out, *LONG, *ENOUGH) as process:
        until(process, lambda: finished_cells(out) >= 2)
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    stored = read_run(out)
    assert not stored.record.complete
    assert len(finished(stored)) >= 2
    assert all(len(stored.samples[cell]) >= 15 * 20 for cell in finished(stored))
    document = reported(out, capsys)
    assert document["complete"] is False
    values = {cell["id"]: cell["facts"]["wall_ns"]["value"] for cell in document["cells"]}
    assert all(values[cell] > 0 for cell in finished(stored))
    assert main(["report", str(out)]) == 0
    assert "partial" in capsys.readouterr().out.lower()


def test_a_kill_in_the_first_cell_leaves_its_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    with probing(out, *LONG, *ENOUGH) as process:
        until(process, lambda: has_samples(out))
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    stored = read_run(out)
    assert finished(stored) == []
    assert {c.error.type for c in stored.record.cells if c.id in stored.samples and c.error} == {"InterruptedRunError"}
    assert reported(out, capsys)["complete"] is False


@pytest.mark.skipif(sys.platform != "linux", reason="children are tied to their parent on Linux only")
@pytest.mark.parametrize("when", ["libtorch", "libtriton"])
def test_a_killed_probe_leaves_no_child_behind(tmp_path: Path, when: str) -> None:
    """The interpreter's child has a session of its own; it ends with the probe, in its imports and at work."""
    argv = ("--path", "fused", "--shape", "1,400,1,16,16", "--phases", "fwd", "--modes", "eager", "--device", "cpu")
    with probing(tmp_path / "run", *argv) as process:
        until(process, lambda: any(has_loaded(when, pid) for pid in children(process.pid)))
        (child,) = children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        end = time.monotonic() + 20
        while alive(child) and time.monotonic() < end:
            time.sleep(0.02)
        left = alive(child)
        if left:
            os.kill(child, signal.SIGKILL)
    assert not left


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def has_loaded(library: str, pid: int) -> bool:
    """Whether this worker has come as far as that library."""
    try:
        return "kdaprof.probe.worker" in Path(f"/proc/{pid}/cmdline").read_text() and (
            library in Path(f"/proc/{pid}/maps").read_text()
        )
    except (FileNotFoundError, PermissionError):
        return False


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---------------------------------------------------------------- interrupted


def test_ctrl_c_ends_the_probe_and_keeps_what_is_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    with probing(out, *LONG, *ENOUGH, "--json") as process:
        until(process, lambda: finished_cells(out) >= 2)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    document = json.loads(stdout, parse_constant=pytest.fail)
    assert document["complete"] is False
    stored = read_run(out)
    assert len(finished(stored)) >= 2
    assert stored.record.conditions.after is not None
    assert "partial" in (out / "report.md").read_text().lower()
    assert reported(out, capsys) == document
    assert main(["report", str(out), "--check"]) == 0


def test_ctrl_c_before_torch_is_there(tmp_path: Path) -> None:
    """During the imports there is nothing to keep: one line, 130."""
    out = tmp_path / "run"
    with probing(out, *LONG, *ENOUGH) as process:
        until(process, lambda: "numpy" in Path(f"/proc/{process.pid}/maps").read_text())
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_is_immediate(
    second: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one is being obeyed, for ever and whatever is raised: the second ends it, the run stays readable."""
    out = tmp_path / "run"
    program = (
        "import sys, time\n"
        "from kdaprof.probe import session\n"
        "def slow(self, complete):\n"
        f"    open({str(tmp_path / 'obeying')!r}, 'w').close()\n"
        "    while True:\n"
        "        try: time.sleep(600)\n"
        "        except KeyboardInterrupt: pass\n"
        "session._Session.finish = lambda self, *, complete: slow(self, complete)\n"
        "from kdaprof.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    argv = [sys.executable, "-c", program, "probe", *LONG, *ENOUGH, *into(out)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        until(process, lambda: has_samples(out))
        process.send_signal(signal.SIGINT)
        until(process, (tmp_path / "obeying").exists)
        began = time.monotonic()
        process.send_signal(second)
        assert process.wait(10) == 130
        assert time.monotonic() - began < 2
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
    assert reported(out, capsys)["complete"] is False


# ---------------------------------------------------------------- out of room

SHORT = ("--paths", "tensor,reference", "--shape", "1,16,1,16,16", "--phases", "fwd,bwd", "--modes", "eager")
LITTLE = ("--rounds", "2", "--samples", "2", "--device", "cpu")


@pytest.mark.parametrize(
    ("code", "write"),
    [*((errno.ENOSPC, write) for write in (2, 5, 9, 14, 20)), (errno.EDQUOT, 9), (errno.EIO, 9)],
)
def test_a_disk_that_fills_up_is_one_line_and_what_is_written_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: int, write: int
) -> None:
    out, fsync, writes = tmp_path / "run", os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal writes
        if not os.path.isdir(f"/proc/self/fd/{descriptor}"):
            writes += 1
            if writes >= write:
                raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(real, "BUSY_WINDOW_NS", 0)  # a second of watching the machine that this test need not wait
    monkeypatch.setattr(atomic.os, "fsync", full)
    got = main(["probe", *SHORT, *LITTLE, *into(out)])
    _, err = capsys.readouterr()
    assert got == 1
    last = err.rstrip("\n").splitlines()[-1]
    assert last.startswith(f"kdaprof: {out}")
    assert f"cannot write ({os.strerror(code)}); free space or choose another place" in last
    assert "Traceback" not in err
    monkeypatch.undo()
    assert not [p for p in out.rglob("*") if p.name.endswith(".tmp")]
    if write > 2:
        stored = read_run(out)
        assert not stored.record.complete or write > 9
        reported(out, capsys)


def test_a_real_limit_on_file_size_is_named(tmp_path: Path) -> None:
    """The kernel itself refuses: run.json may not grow beyond a page or two."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

    out = tmp_path / "run"
    with probing(out, *SHORT, *LITTLE, preexec_fn=limit) as process:
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    last = stderr.rstrip("\n").splitlines()[-1]
    assert last.startswith("kdaprof: ")
    assert f"{out}/" in last
    assert "cannot write (File too large)" in last
    assert "Traceback" not in stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_that_cannot_be_written_does_not_touch_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kdaprof", "probe", *SHORT, "--phases", "fwd", *LITTLE, "--json", *into(out)],
            stdout=full,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode == 1
    assert done.stderr.rstrip("\n").splitlines()[-1].startswith("kdaprof: cannot write the output")
    assert "Traceback" not in done.stderr
    assert reported(out, capsys)["complete"] is True
