"""Two measurements on one card: the second waits or is refused, workers share, the dead hold nothing (case 44)."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kdaprof.cli import probe
from kdaprof.errors import Exit, UsageError
from kdaprof.instruments.fakes import FakeClock
from kdaprof.instruments.lock import CardInUseError, Held, card_lock, holder_of, lock_directory

CARD = "00000000:3B:00.0"


@contextmanager
def held(folder: Path, wait_s: float = 0.0, card: str = CARD, clock: FakeClock | None = None) -> Iterator[Held]:
    told: list[str] = []
    with card_lock(
        card, wait_s=wait_s, clock=clock or FakeClock(), command="kdaprof probe", directory=folder, waiting=told.append
    ) as lock:
        yield lock


def elsewhere(folder: Path, body: str, card: str = CARD) -> subprocess.Popen[str]:
    """A process of its own that takes the lock and runs `body`."""
    script = f"""
        import os, sys, subprocess
        from pathlib import Path
        from kdaprof.instruments.clock import MonotonicClock
        from kdaprof.instruments.lock import card_lock, CardInUseError
        def take(wait_s=0.0):
            place = Path({str(folder)!r})
            return card_lock({card!r}, wait_s=wait_s, clock=MonotonicClock(), command="theirs", directory=place)
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script) + textwrap.dedent(body)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


HOLD = """
    with take():
        print("held", flush=True)
        sys.stdin.readline()
"""


def test_the_second_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    first = elsewhere(tmp_path, HOLD)
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    clock = FakeClock()
    with pytest.raises(CardInUseError, match=rf"process {first.pid} of .*'theirs', since .*--wait S"), held(tmp_path):
        pass
    with pytest.raises(CardInUseError, match="still after 5 s"), held(tmp_path, wait_s=5, clock=clock):
        pass
    assert 5e9 <= sum(clock.slept_ns) < 5.5e9
    assert CardInUseError.exit_code == Exit.UNFIT
    # Another card is free, and to look took nothing from the holder.
    with held(tmp_path, card="00000000:5E:00.0") as other:
        assert other == Held()
    assert (holder_of(next(tmp_path.glob("*3b*"))) or pytest.fail("no holder")).pid == first.pid
    first.communicate("\n")
    with held(tmp_path) as now:
        assert now.missing is None


def test_waiting_ends_when_the_holder_is_gone(tmp_path: Path) -> None:
    first = elsewhere(tmp_path, HOLD)
    assert first.stdout is not None
    first.stdout.readline()

    class Ending(FakeClock):
        def sleep_ns(self, duration_ns: int) -> None:
            super().sleep_ns(duration_ns)
            if len(self.slept_ns) == 3:
                first.kill()  # a holder that is killed gives nothing back itself
                first.wait()

    with held(tmp_path, wait_s=60, clock=Ending()) as lock:
        assert 0 < lock.waited_ns < 2e9
        assert not lock.shared
    first.communicate()


def test_workers_of_the_holder_share_and_strangers_do_not(tmp_path: Path) -> None:
    with held(tmp_path) as mine:
        assert not mine.shared
        with held(tmp_path, card="0000:3b:00.0") as inner:
            assert inner.shared
        worker = elsewhere(tmp_path, "with take() as lock: print(lock.shared)")
        assert worker.communicate()[0] == "True\n"
    assert "KDAPROF_LOCK_HELD" not in os.environ
    # The variable alone is worth nothing: its process must be above us.
    os.environ["KDAPROF_LOCK_HELD"] = "0-3b-00-0@999999999"
    try:
        with held(tmp_path) as own:
            assert not own.shared
    finally:
        del os.environ["KDAPROF_LOCK_HELD"]


def test_others_may_use_the_file_and_links_are_not_followed(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with held(tmp_path):
            pass
    finally:
        os.umask(before)
    path = next(tmp_path.iterdir())
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    assert path.read_bytes() == b""
    path.unlink()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    with held(tmp_path) as lock:
        assert "no lock" in (lock.missing or "")
    assert victim.read_text() == "precious"


def test_a_directory_that_cannot_be_used_is_no_reason_not_to_measure() -> None:
    with held(Path("/proc/nowhere")) as lock:
        assert "/proc/nowhere" in (lock.missing or "")


def test_garbage_in_the_file_names_nobody(tmp_path: Path) -> None:
    path = tmp_path / "kdaprof-gpu-0-3b-00-0.lock"
    for content in (b"", b"{", b"[]", b'{"pid": "x"}', b"\xff" * 10_000):
        path.write_bytes(content)
        assert holder_of(path) is None
    with held(tmp_path) as lock:
        assert lock == Held()


def test_the_directory_is_one_that_all_may_write_to(tmp_path: Path) -> None:
    assert lock_directory({"KDAPROF_LOCK_DIR": str(tmp_path)}) == tmp_path
    assert lock_directory({}).stat().st_mode & stat.S_IWOTH


@pytest.mark.parametrize("seconds", ["-1", "nan", "100000"])
def test_a_wait_without_meaning(seconds: str) -> None:
    with pytest.raises(UsageError, match="--wait"):
        probe.run(["--wait", seconds])
