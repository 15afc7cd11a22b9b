"""Writes are whole or not at all: under a full disk, a writer that breaks, and SIGKILL."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kdaprof.runs import atomic


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_write_makes_its_folders_and_leaves_only_the_file(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "a" / "b" / "x.json", "µ")
    assert (tmp_path / "a" / "b" / "x.json").read_bytes() == "µ".encode()
    assert left_over(tmp_path / "a" / "b") == ["x.json"]
    assert (tmp_path / "a" / "b" / "x.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "x.json"
    atomic.write_text(path, "old")
    monkeypatch.setattr(atomic.os, call, full)
    with pytest.raises(atomic.TargetError) as caught:
        atomic.write_text(path, "new" * 1000)
    assert str(caught.value).startswith(f"{path}: cannot write (No space left on device)")
    assert str(caught.value).endswith("free space or choose another place")
    assert path.read_text() == "old"
    assert left_over(tmp_path) == ["x.json"]


def test_a_full_disk_while_the_text_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    atomic.write_text(path, "old")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(atomic.TargetError, match="No space left"):
        atomic.write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert left_over(tmp_path) == ["x.json"]


def test_a_writer_that_breaks_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    atomic.write_text(path, "old")

    def broken(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError("the writer's own fault")

    with pytest.raises(RuntimeError, match="own fault"):
        atomic.write_with(path, broken)
    assert path.read_text() == "old"
    assert left_over(tmp_path) == ["x.parquet"]


def test_a_device_that_is_always_full() -> None:
    with pytest.raises(atomic.TargetError, match=r"^/dev/full/x\.json: cannot write"):
        atomic.write_text(Path("/dev/full/x.json"), "x")


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(atomic.TargetError, match=r"x\.json: cannot write \(.*notes is not a directory\)"):
        atomic.write_text(tmp_path / "notes" / "x.json", "x")


def test_a_place_is_tried_and_nothing_stays_there(tmp_path: Path) -> None:
    atomic.check_file(tmp_path / "a" / "x.json")
    assert left_over(tmp_path / "a") == []
    for place in (Path("/proc/x"), tmp_path / "a", tmp_path / "file" / "x"):
        (tmp_path / "file").touch()
        with pytest.raises(atomic.TargetError, match="cannot write"):
            atomic.check_file(place)


@pytest.mark.parametrize("linked", [False, True])
def test_what_is_no_file_is_never_replaced(tmp_path: Path, linked: bool) -> None:
    """A pipe stands for a device here: only root could lose one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    path = tmp_path / "link" if linked else pipe
    with pytest.raises(atomic.TargetError, match="a device or a pipe, not a file"):
        atomic.write_text(path, "x")
    assert pipe.is_fifo()
    assert left_over(tmp_path) == ["link", "pipe"]
    with pytest.raises(atomic.TargetError, match="a directory, not a file"):
        atomic.write_text(tmp_path, "x")


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "latest.json").symlink_to(tmp_path / "a" / "x.json")
    for text in ("first", "second"):  # where the link leads there is no file at first
        atomic.write_text(tmp_path / "latest.json", text)
        assert (tmp_path / "latest.json").is_symlink()
        assert (tmp_path / "a" / "x.json").read_text() == text
    assert left_over(tmp_path / "a") == ["x.json"]


def test_a_reader_never_sees_half_a_file_when_the_writer_is_killed(tmp_path: Path) -> None:
    """SIGKILL at an arbitrary moment of a writer that does nothing but write: old or new, never half."""
    path = tmp_path / "x.json"
    program = (
        "import sys, json, itertools; from pathlib import Path; from kdaprof.runs.atomic import write_text\n"
        "for i in itertools.count(): write_text(Path(sys.argv[1]), json.dumps([i] * 20_000))"
    )
    for wait in (0.0, 0.004, 0.011, 0.023):
        child = subprocess.Popen([sys.executable, "-c", program, str(path)])
        try:
            deadline = time.monotonic() + 20
            path.unlink(missing_ok=True)
            while not path.exists():
                assert time.monotonic() < deadline, "the writer never wrote"
                time.sleep(0.001)
            time.sleep(wait)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        values = json.loads(path.read_text())
        assert len(values) == 20_000
        assert len(set(values)) == 1
