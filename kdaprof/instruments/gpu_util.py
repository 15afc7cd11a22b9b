"""Samples of one card at a steady rate, in a thread of their own, while something else runs.

Sample k is due at t0 + k / hz, so that lateness does not add up; a sample that comes late says by how much. NVML's
utilisation is itself an average over 1/6 to 1 s: sampled faster, the same reading comes back, and such a repeat is
marked stale, so that nobody counts it as an observation of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from kdaprof.instruments.clock import Clock
from kdaprof.instruments.sensor import GpuSensor
from kdaprof.instruments.watch.extras import ENERGY_SHARE, GPM_PERIOD_NS, EnergyRows, GpmReader, GpmRows
from kdaprof.instruments.watch.loop import SampleLoop, Stopped
from kdaprof.instruments.watch.pace import Pace
from kdaprof.instruments.watch.taker import Extra, SampleTaker
from kdaprof.runs.util import UtilReading


@dataclass(frozen=True, slots=True)
class UtilSeries:
    """All samples of one card, and what taking them cost.

    `due` samples should have been taken between `start_ns` and `end_ns`, `taken` were; `lateness_ns` has one entry
    a sample taken. `own_cpu_ns` is the CPU time of the sampling thread.
    """

    uuid: str | None
    hz: float
    start_ns: int
    end_ns: int
    due: int
    taken: int
    lateness_ns: tuple[int, ...]
    own_cpu_ns: int
    stopped: Stopped | None
    rows: tuple[UtilReading, ...]

    def values(self, field: str, *, fresh_only: bool = True) -> tuple[float, ...]:
        """The values of one field that are there; without stale repeats unless asked for."""
        return tuple(
            row.value
            for row in self.rows
            if row.field == field and row.value is not None and not (fresh_only and row.stale)
        )


class _Kept:
    """A sink that keeps everything: a sustained loop lasts seconds."""

    def __init__(self) -> None:
        self.rows: list[UtilReading] = []
        self.lateness_ns: list[int] = []

    def tick(self, t_ns: int, late_ns: int) -> None:
        self.lateness_ns.append(late_ns)

    def add(self, rows: Sequence[UtilReading]) -> None:
        self.rows += rows


class Sampler:
    """The sampling thread. `start`, then `stop` for the series; or as a context manager, then `series`."""

    def __init__(self, sensor: GpuSensor, clock: Clock, hz: float, *, gpm: GpmReader | None = None) -> None:
        """Errors: UsageError when `hz` is not in (0, 100]."""
        self._uuid = sensor.uuid
        self._hz = hz
        self._kept = _Kept()
        self._stop = threading.Event()
        # Seconds at most: GPM as often as it has counts, the energy at both ends.
        extras: list[Extra] = []
        if gpm is not None:
            extras.append(GpmRows(sensor, gpm, Pace(None, period_ns=GPM_PERIOD_NS)))
        extras.append(EnergyRows(sensor, Pace(ENERGY_SHARE)))
        self._loop = SampleLoop([SampleTaker(sensor, extras)], clock, hz, self._kept, wait=self._stop.wait)
        self._thread = threading.Thread(target=self._loop.run, name="kdaprof-gpu-util", daemon=True)
        self._series: UtilSeries | None = None

    def start(self) -> Sampler:
        """Take sample 0 at once, and go on until `stop`."""
        self._loop.begin()
        self._thread.start()
        return self

    def stop(self) -> UtilSeries:
        """Stop, wait for the thread, and give the series. A second call gives the same."""
        if self._series is None:
            self._stop.set()
            self._thread.join()
            loop, kept = self._loop, self._kept
            assert loop.end_ns is not None
            self._series = UtilSeries(
                uuid=self._uuid,
                hz=self._hz,
                start_ns=loop.start_ns,
                end_ns=loop.end_ns,
                due=loop.due,
                taken=loop.taken,
                lateness_ns=tuple(kept.lateness_ns),
                own_cpu_ns=loop.own_cpu_ns,
                stopped=loop.stopped.get(0),
                rows=tuple(kept.rows),
            )
        return self._series

    def __enter__(self) -> Sampler:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def series(self) -> UtilSeries:
        """The series of a stopped sampler."""
        return self.stop()
