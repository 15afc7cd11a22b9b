"""One card's readings as rows, with repeats of the same NVML window marked stale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from kdaprof.instruments.reading import Reading, missing
from kdaprof.instruments.sensor import GpuSensor, MemoryUse, Utilisation
from kdaprof.runs.util import UtilReading

T = TypeVar("T")

# NVML reference, nvmlUtilization_t: "the sample period may be between 1 second and 1/6 second".
UTILISATION_PERIOD_NS = 166_666_667


class Extra(Protocol):
    """More rows of the same card, at a pace of their own."""

    def rows(self, t_ns: int, *, last: bool = False) -> Sequence[UtilReading]:
        """Those that are due at `t_ns`; `last` when none will be asked for after them."""
        ...


class SampleTaker:
    """Turns one card's readings into rows; knows which of them are repeats. Pure but for the readings themselves."""

    def __init__(self, sensor: GpuSensor, extras: Sequence[Extra] = ()) -> None:
        self._sensor = sensor
        self._extras = tuple(extras)
        self._seen: dict[str, tuple[float, int]] = {}

    def take(self, t_ns: int) -> tuple[list[UtilReading], str | None]:
        """The rows of one sample at `t_ns`, and why the series must end, if it must (the card is lost)."""
        utilisation = self._sensor.utilisation()
        memory = self._sensor.memory()
        readings: list[tuple[str, Reading[float]]] = [
            ("util", _map(utilisation, _gpu_share)),
            ("mem_util", _map(utilisation, _memory_share)),
            ("mem_used_bytes", _map(memory, _used)),
            ("sm_clock_hz", _map(self._sensor.sm_clock_hz(), float)),
            ("mem_clock_hz", _map(self._sensor.mem_clock_hz(), float)),
            ("power_w", self._sensor.power_w()),
            ("temperature_c", _map(self._sensor.temperature_c(), float)),
        ]
        rows = [self._row(t_ns, field, reading) for field, reading in readings]
        lost = next((r.reason for _, r in readings if r.missing and r.missing.kind == "gpu-lost"), None)
        if lost is None:
            for extra in self._extras:
                rows += extra.rows(t_ns)
        return rows, lost

    def last(self, t_ns: int) -> list[UtilReading]:
        """What is read once more when the series ends at `t_ns`: counters that are read seldom."""
        return [row for extra in self._extras for row in extra.rows(t_ns, last=True)]

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


def _gpu_share(utilisation: Utilisation) -> float:
    return utilisation.gpu


def _memory_share(utilisation: Utilisation) -> float:
    return utilisation.memory


def _used(memory: MemoryUse) -> float:
    return float(memory.used_bytes)


def _map(reading: Reading[T], pick: Callable[[T], float | None]) -> Reading[float]:
    if reading.value is None:
        return Reading(None, reading.missing)
    value = pick(reading.value)
    return Reading(value) if value is not None else missing("not-supported", "this card gives no such figure")
