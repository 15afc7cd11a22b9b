"""A verb that measures on a card has it to itself: the same lock, the same `--wait`, the same line about who has it.

The probe's is tested with the probe.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "unit" / "ab"))
from ab_parts import GATE, HEAD, SHAPES, TARGETS, PaperMachine

from kdaprof.cli import ab_run
from kdaprof.cli.main import main
from kdaprof.doctor import gather
from kdaprof.errors import Exit
from kdaprof.instruments import cuda_device
from kdaprof.instruments.device import CpuDevice
from kdaprof.instruments.fakes import FAKE_TRAITS, FakeClock, FakeDevice
from kdaprof.instruments.lock import card_lock
from kdaprof.probe import ceilings, launch_costs

HOLDER = {"pid": 4711, "user": "ada", "since": 1_800_000_000, "command": "kdaprof probe"}
Arrange = Callable[[str, Callable[[], None]], list[str]]


@contextmanager
def held_by_another(folder: Path) -> Iterator[None]:
    """The card's lock in another hand, which says whose it is."""
    assert FAKE_TRAITS.pci_bus_id is not None
    with card_lock(FAKE_TRAITS.pci_bus_id, wait_s=0, clock=FakeClock(), command="x", directory=folder):
        pass
    (path,) = folder.glob("*.lock")
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(HOLDER))
        file.flush()
        yield
        file.truncate(0)


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "locks"
    folder.mkdir()
    monkeypatch.setenv("KDAPROF_LOCK_DIR", str(folder))
    return folder


@pytest.fixture
def arrange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Arrange:
    """A line for a verb on a machine with the fake card, or none; `measure` is called where it would measure."""

    def arranged(verb: str, measure: Callable[[], None], *, card: bool = True) -> list[str]:
        def figures(*_: object) -> tuple[()]:
            measure()
            return ()

        if verb == "ab":
            monkeypatch.chdir(tmp_path)
            Path("contract.toml").write_text(HEAD + TARGETS + SHAPES + GATE)
            device = FakeDevice() if card else CpuDevice()
            monkeypatch.setattr(ab_run, "this_machine", lambda _: PaperMachine(device))

            def experiment(*_: object) -> None:
                measure()
                raise KeyboardInterrupt

            monkeypatch.setattr(ab_run, "run_experiment", experiment)
            return ["ab", "contract.toml", "--out", "out"]
        if verb == "roofline":
            monkeypatch.setattr(torch.cuda, "is_available", lambda: card)
            monkeypatch.setattr(cuda_device, "open_device", FakeDevice)
            monkeypatch.setattr(ceilings, "measure_ceilings", figures)
            monkeypatch.setattr(launch_costs, "measure_launch_costs", lambda *_: ())
            return ["roofline"]
        monkeypatch.setattr(gather, "_device", lambda _: (FAKE_TRAITS, None) if card else (None, "no card"))
        monkeypatch.setattr(gather, "_attention", lambda _: ())
        monkeypatch.setattr(gather, "BUSY_WINDOW_NS", 0)
        monkeypatch.setattr(gather, "_ceilings", figures)
        return ["doctor", "--measure"]

    return arranged


def nobody() -> None:
    raise AssertionError("measured all the same")


@pytest.mark.parametrize("verb", ["ab", "roofline", "doctor"])
def test_a_card_that_another_measures_on_is_refused_in_one_line_that_says_who_has_it(
    verb: str, locks: Path, tmp_path: Path, arrange: Arrange, capsys: pytest.CaptureFixture[str]
) -> None:
    line = arrange(verb, nobody)
    who = "process 4711 of ada, 'kdaprof probe', since 08:00:00 UTC"
    with held_by_another(locks):
        assert main(line) == Exit.UNFIT
        out, err = capsys.readouterr()
        assert (out, err) == ("", f"kdaprof: GPU 00000000:01:00.0 is being measured on by {who}; wait with --wait S\n")
        assert main([*line, "--wait", "0.3"]) == Exit.UNFIT
        out, err = capsys.readouterr()
        first, second = err.splitlines()
        assert first == f"kdaprof: waiting up to 0.3 s for GPU 00000000:01:00.0: {who}"
        assert second.endswith("still after 0.3 s")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["ab", "roofline", "doctor"])
def test_it_waits_for_its_turn_and_then_keeps_others_off(verb: str, locks: Path, arrange: Arrange) -> None:
    seen: list[dict[str, object]] = []

    def measure() -> None:
        (path,) = locks.glob("*.lock")
        with path.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(json.loads(path.read_text()))

    line = arrange(verb, measure)
    over, has_it = threading.Event(), threading.Event()

    def other() -> None:
        with held_by_another(locks):
            has_it.set()
            over.wait(20)

    thread = threading.Thread(target=other)
    thread.start()
    assert has_it.wait(20)
    timer = threading.Timer(0.5, over.set)
    timer.start()
    began = time.monotonic()
    main([*line, "--wait", "60"])
    thread.join()
    assert time.monotonic() - began >= 0.5
    (told,) = seen
    assert told["pid"] == os.getpid()
    assert str(told["command"]).startswith(f"kdaprof {verb}")


def test_where_no_lock_can_lie_it_measures_and_says_that_nobody_is_kept_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrange: Arrange, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a-file").write_text("")
    monkeypatch.setenv("KDAPROF_LOCK_DIR", str(tmp_path / "a-file"))
    measured: list[bool] = []
    main(arrange("roofline", lambda: measured.append(True)))
    assert measured
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "no lock" in line]
    assert said.endswith("another run on this card would not notice")


@pytest.mark.parametrize("verb", ["ab", "roofline", "doctor"])
def test_without_a_card_nothing_is_locked(verb: str, locks: Path, arrange: Arrange) -> None:
    main(arrange(verb, lambda: None, card=False))  # type: ignore[call-arg]
    assert list(locks.iterdir()) == []


def test_what_measures_nothing_locks_nothing(locks: Path, arrange: Arrange) -> None:
    roofline = arrange("roofline", nobody)
    assert main([*roofline, "--no-measure"]) == Exit.OK
    doctor = arrange("doctor", nobody)
    main([word for word in doctor if word != "--measure"])
    assert list(locks.iterdir()) == []


@pytest.mark.parametrize("seconds", ["-1", "nan"])
@pytest.mark.parametrize("verb", ["ab", "roofline", "doctor"])
def test_a_wait_that_makes_no_sense_is_a_usage_error(
    verb: str, seconds: str, arrange: Arrange, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arrange(verb, nobody), "--wait", seconds]) == Exit.USAGE
    assert capsys.readouterr().err.startswith("kdaprof: --wait")
