"""The live line: redrawn on a terminal of its own, a plain line now and then beside a command, never in the way."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest

from kdaprof.cli.gpu_util_live import How, LiveLine
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.fakes import FakeCard, FakePynvml
from kdaprof.instruments.nvml import open_nvml
from kdaprof.instruments.watch.cards import choose
from kdaprof.instruments.watch.watch import WatchPlan, watch
from kdaprof.runs.util import UtilReading

S = 1_000_000_000


class Counted:
    """A sink that counts, or breaks at a row."""

    def __init__(self, breaks: bool = False) -> None:
        self.ticks, self.rows, self._breaks = 0, 0, breaks

    def tick(self, t_ns: int, late_ns: int) -> None:
        self.ticks += 1

    def add(self, rows: Sequence[UtilReading]) -> None:
        if self._breaks:
            raise ValueError("no such row")
        self.rows += len(rows)


class Gone(io.StringIO):
    """A terminal that hung up."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def reading(field: str, value: float) -> UtilReading:
    return UtilReading(t_ns=S, uuid="GPU-a", field=field, value=value, stale=False, missing=None)


def shown(how: How, stream: io.StringIO, seconds: int) -> Counted:
    """A card at 2 Hz for so long."""
    behind = Counted()
    live = LiveLine(behind, stream, how=how)
    for half in range(2 * seconds + 1):
        live.tick(S + half * S // 2, 0)
        readings = (("util", half / 1000), ("power_w", 350.0), ("energy_j", 1.0))
        live.add([reading(field, value) for field, value in readings])
    live.end()
    assert (behind.ticks, behind.rows) == (2 * seconds + 1, 3 * (2 * seconds + 1))
    return behind


def test_beside_a_command_it_is_a_line_every_ten_seconds_that_erases_nothing() -> None:
    stream = io.StringIO()
    shown("lines", stream, 25)
    assert stream.getvalue() == "kdaprof: 10 s  util 1.9 % · 350 W\nkdaprof: 20 s  util 3.9 % · 350 W\n"


def test_alone_it_is_redrawn_and_taken_away() -> None:
    stream = io.StringIO()
    shown("redrawn", stream, 2)
    drawn = stream.getvalue().split("\r\x1b[2K")
    assert drawn[0] == drawn[-1] == ""
    assert len(drawn) == 2 + 4


@pytest.mark.parametrize("how", ["off", "lines", "redrawn"])
def test_off_or_without_its_terminal_the_samples_go_on(how: How) -> None:
    shown(how, Gone(), 25)


def test_a_fault_of_its_own_ends_the_sampling_by_name_and_not_in_silence() -> None:
    nvml = open_nvml(lambda: FakePynvml([FakeCard("GPU-a", "00000000:01:00.0")]))
    assert nvml.value is not None
    chosen = choose(nvml.value, None, {})
    plan = WatchPlan(hz=50, command=(), duration_s=5)
    outcome = watch(plan, chosen.cards, Counted(breaks=True), MonotonicClock(), leave=lambda: None, told=print)
    assert "ValueError: no such row" in str(outcome.failure)
    assert not outcome.record.complete
