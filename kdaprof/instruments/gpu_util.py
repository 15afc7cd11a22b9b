"""Samples of one card at a steady rate, in a thread of their own, while something else runs.

Sample k is due at t0 + k / hz, so that lateness does not add up; a sample that comes late says by how much. NVML's
utilisation is itself an average over 1/6 to 1 s: sampled faster, the same reading comes back, and such a repeat is
marked stale, so that nobody counts it as an observation of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kdaprof.errors import UsageError
from kdaprof.instruments.clock import Clock
from kdaprof.instruments.gpm import GpmActivity
from kdaprof.instruments.reading import Reading, missing
from kdaprof.instruments.sensor import GpuSensor
from kdaprof.runs.util import UtilReading

T = TypeVar("T")

MAX_HZ = 100.0
# NVML reference, nvmlUtilization_t: "the sample period may be between 1 second and 1/6 second".
UTILISATION_PERIOD_NS = 166_666_667
# Two GPM samples closer than this may have no counts between them.
GPM_PERIOD_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class Stopped:
    """A series that ended before it was stopped: the reason, and the monotonic time."""

    reason: str
    t_ns: int


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


class GpmReader(Protocol):
    """A source of GPM activity since the last reading."""

    def read(self) -> Reading[GpmActivity]:
        """Activity since the last reading."""
        ...


class SampleTaker:
    """Turns one card's readings into rows; knows which of them are repeats. Pure but for the readings themselves."""

    def __init__(self, sensor: GpuSensor, gpm: GpmReader | None = None) -> None:
        self._sensor = sensor
        self._gpm = gpm
        self._gpm_due_ns: int | None = None
        self._seen: dict[str, tuple[float, int]] = {}

    def take(self, t_ns: int) -> tuple[list[UtilReading], str | None]:
        """The rows of one sample at `t_ns`, and why the series must end, if it must (the card is lost)."""
        utilisation = self._sensor.utilisation()
        memory = self._sensor.memory()
        readings: list[tuple[str, Reading[float]]] = [
            ("util", _map(utilisation, lambda u: u.gpu)),
            ("mem_util", _map(utilisation, lambda u: u.memory)),
            ("mem_used_bytes", _map(memory, lambda m: float(m.used_bytes))),
            ("sm_clock_hz", _map(self._sensor.sm_clock_hz(), float)),
            ("mem_clock_hz", _map(self._sensor.mem_clock_hz(), float)),
            ("power_w", self._sensor.power_w()),
            ("energy_j", self._sensor.energy_j()),
            ("temperature_c", _map(self._sensor.temperature_c(), float)),
        ]
        readings += self._gpm_readings(t_ns)
        rows = [self._row(t_ns, field, reading) for field, reading in readings]
        lost = next((r.reason for _, r in readings if r.missing and r.missing.kind == "gpu-lost"), None)
        return rows, lost

    def _gpm_readings(self, t_ns: int) -> list[tuple[str, Reading[float]]]:
        if self._gpm is None or (self._gpm_due_ns is not None and t_ns < self._gpm_due_ns):
            return []
        self._gpm_due_ns = t_ns + GPM_PERIOD_NS
        activity = self._gpm.read()
        return [
            ("gpm_graphics", _map(activity, lambda a: a.graphics)),
            ("gpm_sm", _map(activity, lambda a: a.sm)),
            ("gpm_occupancy", _map(activity, lambda a: a.occupancy)),
            ("gpm_dram", _map(activity, lambda a: a.dram)),
        ]

    def _row(self, t_ns: int, field: str, reading: Reading[float]) -> UtilReading:
        stale = False
        if field in ("util", "mem_util") and reading.value is not None:
            last = self._seen.get(field)
            stale = last is not None and last[0] == reading.value and t_ns - last[1] < UTILISATION_PERIOD_NS
            if not stale:
                self._seen[field] = (reading.value, t_ns)
        return UtilReading(
            t_ns=t_ns,
            uuid=self._sensor.uuid,
            field=field,
            value=reading.value,
            stale=stale,
            missing=reading.reason,
        )


class Sampler:
    """The sampling thread. `start`, then `stop` for the series; or as a context manager, then `series`."""

    def __init__(self, sensor: GpuSensor, clock: Clock, hz: float, *, gpm: GpmReader | None = None) -> None:
        """Errors: UsageError when `hz` is not in (0, 100]."""
        if not 0 < hz <= MAX_HZ:
            raise UsageError(f"the sampling rate is {hz} Hz; it must be above 0 and at most {MAX_HZ:.0f} Hz")
        self._taker = SampleTaker(sensor, gpm)
        self._uuid = sensor.uuid
        self._clock = clock
        self._hz = hz
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kdaprof-gpu-util", daemon=True)
        self._rows: list[UtilReading] = []
        self._lateness_ns: list[int] = []
        self._own_cpu_ns = 0
        self._stopped: Stopped | None = None
        self._start_ns = 0
        self._series: UtilSeries | None = None

    def start(self) -> Sampler:
        """Take sample 0 at once, and go on until `stop`."""
        self._start_ns = self._clock.now_ns()
        self._thread.start()
        return self

    def stop(self) -> UtilSeries:
        """Stop, wait for the thread, and give the series. A second call gives the same."""
        if self._series is None:
            self._stop.set()
            self._thread.join()
            end_ns = self._stopped.t_ns if self._stopped else self._clock.now_ns()
            self._series = UtilSeries(
                uuid=self._uuid,
                hz=self._hz,
                start_ns=self._start_ns,
                end_ns=end_ns,
                due=samples_due(self._start_ns, end_ns, self._hz),
                taken=len(self._lateness_ns),
                lateness_ns=tuple(self._lateness_ns),
                own_cpu_ns=self._own_cpu_ns,
                stopped=self._stopped,
                rows=tuple(self._rows),
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

    def _run(self) -> None:
        cpu_at_start = time.thread_time_ns()
        due = 0
        try:
            while not self._stop.is_set():
                now = self._clock.now_ns()
                rows, lost = self._taker.take(now)
                self._rows += rows
                self._lateness_ns.append(max(0, now - due_ns(self._start_ns, due, self._hz)))
                if lost is not None:
                    self._stopped = Stopped(lost, now)
                    return
                # A sample that took longer than the period is not made up for in a burst: those due are skipped.
                due = next_due(self._start_ns, self._clock.now_ns(), self._hz, after=due)
                wait_ns = due_ns(self._start_ns, due, self._hz) - self._clock.now_ns()
                if wait_ns > 0:
                    self._stop.wait(wait_ns / 1e9)
        except Exception as error:  # a sensor that breaks its word ends its series, not the run
            self._stopped = Stopped(f"the sampler failed: {type(error).__name__}: {error}", self._clock.now_ns())
        finally:
            self._own_cpu_ns = time.thread_time_ns() - cpu_at_start


def due_ns(start_ns: int, k: int, hz: float) -> int:
    """Monotonic time at which sample k is due."""
    return start_ns + round(k * 1e9 / hz)


def next_due(start_ns: int, now_ns: int, hz: float, *, after: int) -> int:
    """The first sample later than number `after` that is not past by more than a whole period."""
    period = 1e9 / hz
    return max(after + 1, int((now_ns - start_ns) / period))


def samples_due(start_ns: int, end_ns: int, hz: float) -> int:
    """How many samples were due in [start, end], sample 0 included."""
    return 1 + int((end_ns - start_ns) * hz / 1e9)


def _map(reading: Reading[T], pick: Callable[[T], float | None]) -> Reading[float]:
    if reading.value is None:
        return Reading(None, reading.missing)
    value = pick(reading.value)
    return Reading(value) if value is not None else missing("not-supported", "this card gives no such figure")
