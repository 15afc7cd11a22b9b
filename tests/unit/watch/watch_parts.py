"""What the tests of a watch share: virtual waiting, sensors of several cards, series on paper."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from kdaprof.instruments.fakes import FakeClock, FakeSensor
from kdaprof.instruments.sensor import Utilisation
from kdaprof.runs.util import UtilReading
from kdaprof.runs.util_file import FieldSeries

S = 1_000_000_000


class WorkingClock(FakeClock):
    """Virtual time that charges the CPU time of the thread that reads it: preemption by others costs nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._cpu_ns = time.thread_time_ns()

    def now_ns(self) -> int:
        now = time.thread_time_ns()
        self.time_ns += now - self._cpu_ns
        self._cpu_ns = now
        return self.time_ns


def waiter(clock: FakeClock, stop_at_ns: int | None = None) -> Callable[[float], bool]:
    """Waits by moving the clock; asks for the end at `stop_at_ns`."""

    def wait(seconds: float) -> bool:
        clock.advance(round(seconds * 1e9))
        return stop_at_ns is not None and clock.time_ns >= stop_at_ns

    return wait


def sensors(count: int, util: float = 0.3) -> list[FakeSensor]:
    return [FakeSensor(uuid=f"GPU-{i}", utilisations=[Utilisation(util, 0.1)]) for i in range(count)]


class Kept:
    """A sink that keeps all."""

    def __init__(self) -> None:
        self.ticks: list[tuple[int, int]] = []
        self.rows: list[UtilReading] = []

    def tick(self, t_ns: int, late_ns: int) -> None:
        self.ticks.append((t_ns, late_ns))

    def add(self, rows: Sequence[UtilReading]) -> None:
        self.rows += rows


def series(values: Sequence[float | None], *, step_ns: int = S // 2, start_ns: int = 0) -> FieldSeries:
    """Equally spaced readings; None is missing, `not here`."""
    present = np.array([np.nan if value is None else value for value in values], float)
    gone = int(np.isnan(present).sum())
    return FieldSeries(
        t_ns=start_ns + step_ns * np.arange(len(values), dtype=np.int64),
        value=present,
        stale=np.zeros(len(values), bool),
        reasons={"not here": gone} if gone else {},
    )


def row(t_ns: int, field: str, value: float | None, uuid: str | None = "GPU-0") -> UtilReading:
    missing = None if value is not None else "not here"
    return UtilReading(t_ns=t_ns, uuid=uuid, field=field, value=value, stale=False, missing=missing)
