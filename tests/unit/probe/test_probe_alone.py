"""A probe has its card to itself, and gives a hot one time: the lock and the pause, wired into the whole."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from probe_parts import PaperLab, cpu_bench, request, tiny_plan

from kdaprof.cli import probe_run
from kdaprof.instruments.fakes import FAKE_TRAITS, FakeClock, FakeDevice, FakeSensor
from kdaprof.instruments.lock import CardInUseError, card_lock
from kdaprof.instruments.reading import Reading
from kdaprof.probe.session import run_probe


class SkippingClock:
    """Real time, but for sleeping, which takes none."""

    def __init__(self) -> None:
        self._skipped_ns = 0

    def now_ns(self) -> int:
        return time.monotonic_ns() + self._skipped_ns

    def unix_ns(self) -> int:
        return time.time_ns() + self._skipped_ns

    def sleep_ns(self, duration_ns: int) -> None:
        self._skipped_ns += duration_ns


def test_a_limited_card_gets_a_pause_between_rounds_and_the_run_says_so(tmp_path: Path) -> None:
    sensor = FakeSensor()
    sensor.values["throttle_reasons"] = ("sw_thermal_slowdown",)
    bench = replace(cpu_bench(), clock=SkippingClock(), sensor=Reading(sensor), sm_clock=lambda: 1_500_000_000)
    record = run_probe(tiny_plan(tmp_path / "run"), PaperLab(bench=bench).lab()).record
    told = [note for note in record.notes if "sw_thermal_slowdown" in note]
    assert [note.split(":")[0] for note in told] == ["after round 1", "after round 2"]
    assert "paused 0.5 s" in told[0]
    assert "paused 1.0 s" in told[1]


def test_a_card_that_is_well_gets_none(tmp_path: Path) -> None:
    bench = replace(cpu_bench(), sensor=Reading(FakeSensor()), sm_clock=lambda: 1_500_000_000)
    record = run_probe(tiny_plan(tmp_path / "run"), PaperLab(bench=bench).lab()).record
    assert not any("paused" in note for note in record.notes)


@contextmanager
def somebody_else(folder: Path) -> Iterator[None]:
    """The card's lock, held by another hand."""
    assert FAKE_TRAITS.pci_bus_id is not None
    with card_lock(FAKE_TRAITS.pci_bus_id, wait_s=0, clock=FakeClock(), command="x", directory=folder):
        pass
    (path,) = folder.glob("*.lock")
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_probe_does_not_begin_while_another_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDAPROF_LOCK_DIR", str(tmp_path))
    monkeypatch.setattr(probe_run, "open_device", lambda _: FakeDevice(FakeClock()))
    asked = request(out=tmp_path / "run")
    with somebody_else(tmp_path), pytest.raises(CardInUseError, match="another process; wait with --wait S"):
        probe_run.probe_and_report(asked, as_json=False)
    assert not (tmp_path / "run").exists()
