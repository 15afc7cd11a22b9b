"""What may disturb a measurement, seen at one moment: others on the card, clocks, limits, load of the host.

Nothing here judges: the rules Q03 to Q05 do. A value that cannot be had is None, with its reason in `missing`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from kdaprof.instruments import host
from kdaprof.instruments.clock import Clock
from kdaprof.instruments.reading import Reading
from kdaprof.instruments.sensor import GpuSensor
from kdaprof.runs.conditions import (
    ConditionsSnapshot,
    ForeignProcess,
    GpuConditions,
    HostConditions,
    MissingField,
)

T = TypeVar("T")

BUSY_WINDOW_NS = 1_000_000_000
_POLLS = 10


class _Notes:
    """Collects why a value is missing while the values themselves pass through."""

    def __init__(self) -> None:
        self.missing: list[MissingField] = []

    def take(self, name: str, reading: Reading[T] | host.HostValue[T]) -> T | None:
        if reading.value is None:
            reason = reading.reason if isinstance(reading, Reading) else reading.missing
            self.note(name, reason or "no reason was given")
        return reading.value

    def note(self, name: str, reason: str) -> None:
        self.missing.append(MissingField(name, reason))


def snapshot(
    sensor: Reading[GpuSensor],
    clock: Clock,
    *,
    busy_window_ns: int = BUSY_WINDOW_NS,
    root: Path = host.ROOT,
    family: Callable[[], frozenset[int]] | None = None,
    process_name: Callable[[int], str | None] | None = None,
    holds_context: bool | None = None,
) -> ConditionsSnapshot:
    """The machine now, after watching it for `busy_window_ns` (0: no watching, so no `util_before`, no `steal`).

    `sensor` is the card, or the reason why there is none. `family` gives the process ids that are ours,
    `process_name` the name of a pid (None: no such process here), `holds_context` whether this process uses the
    card (its absence from the card's list then shows another pid namespace).
    """
    notes = _Notes()
    ticks = host.cpu_times(root)
    busy = _watch(sensor.value, clock, busy_window_ns)
    steal = host.steal_fraction(ticks, host.cpu_times(root))
    gpu: GpuConditions | None = None
    if sensor.value is None:
        notes.note("gpu", sensor.reason or "no card")
    else:
        people = _People(
            family() if family else own_process_tree(),
            process_name or name_of_process,
            cuda_is_in_use() if holds_context is None else holds_context,
        )
        gpu = _gpu(sensor.value, busy, busy_window_ns, people, notes)
    return ConditionsSnapshot(
        monotonic_ns=clock.now_ns(),
        unix_ns=clock.unix_ns(),
        gpu=gpu,
        host=_host(root, steal, notes),
        missing=tuple(notes.missing),
    )


def own_process_tree() -> frozenset[int]:
    """Ids of the current process, its ancestors and all its descendants."""
    me = psutil.Process()
    try:
        relatives = [*me.parents(), *me.children(recursive=True)]
    except psutil.Error:
        relatives = []
    return frozenset({me.pid, *(process.pid for process in relatives)})


def name_of_process(pid: int) -> str | None:
    """The name of a process, `?` when it may not be read, None when this namespace has no such process."""
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return None
    except psutil.Error:
        return "?"


def cuda_is_in_use() -> bool:
    """Whether this process has a CUDA context by torch; False where torch was never imported."""
    torch = sys.modules.get("torch")
    return bool(torch is not None and torch.cuda.is_initialized())


class _People:
    """Tells our processes on the card from others'."""

    def __init__(self, ours: frozenset[int], process_name: Callable[[int], str | None], holds_context: bool) -> None:
        self._ours = ours
        self._name = process_name
        self._holds_context = holds_context

    def foreign(self, sensor: GpuSensor, notes: _Notes) -> tuple[ForeignProcess, ...] | None:
        listed = notes.take("gpu.foreign", sensor.processes())
        if listed is None:
            return None
        names = {p.pid: self._name(p.pid) for p in listed}
        unknown = [pid for pid, name in names.items() if name is None and pid not in self._ours]
        absent = self._holds_context and not any(p.pid in self._ours for p in listed)
        if unknown or absent:
            seen = f"the card's {len(listed)} process ids are" if listed else "the card lists no process: ours is"
            notes.note(
                "gpu.foreign",
                f"{seen} of another pid namespace (a container without --pid=host): who else is on it cannot be told; "
                "look at mem_used_bytes and util_before",
            )
            return None
        shares = {p.pid: p.util for p in sensor.process_utilisation().value or ()}
        return tuple(
            ForeignProcess(p.pid, names[p.pid], p.used_bytes, shares.get(p.pid))
            for p in listed
            if p.pid not in self._ours
        )


def _watch(sensor: GpuSensor | None, clock: Clock, window_ns: int) -> list[float]:
    """Utilisation readings of the second half of the window: the first half may still average our own work in."""
    readings: list[float] = []
    for poll in range(_POLLS if window_ns > 0 else 0):
        clock.sleep_ns(window_ns // _POLLS)
        if sensor is not None and poll >= _POLLS // 2:
            reading = sensor.utilisation()
            if reading.value is not None:
                readings.append(reading.value.gpu)
    return readings


def _gpu(sensor: GpuSensor, busy: list[float], window_ns: int, people: _People, notes: _Notes) -> GpuConditions:
    def take(name: str, reading: Reading[T]) -> T | None:
        return notes.take(f"gpu.{name}", reading)

    utilisation = take("util", sensor.utilisation())
    memory = take("mem_used_bytes", sensor.memory())
    if memory is None:
        notes.note("gpu.mem_total_bytes", notes.missing[-1].reason)
    if not busy:
        reason = "not watched" if window_ns <= 0 else "no utilisation could be read in the window"
        notes.note("gpu.util_before", reason)
    if sensor.uuid is None:
        notes.note("gpu.uuid", "NVML gave no UUID")
    if window_ns <= 0:
        notes.note("gpu.busy_window_ns", "not watched")
    return GpuConditions(
        uuid=sensor.uuid,
        name=take("name", sensor.name()),
        pci_bus_id=take("pci_bus_id", sensor.pci_bus_id()),
        util=utilisation.gpu if utilisation else None,
        util_before=sum(busy) / len(busy) if busy else None,
        busy_window_ns=window_ns if window_ns > 0 else None,
        mem_used_bytes=memory.used_bytes if memory else None,
        mem_total_bytes=memory.total_bytes if memory else None,
        sm_clock_hz=take("sm_clock_hz", sensor.sm_clock_hz()),
        sm_clock_max_hz=take("sm_clock_max_hz", sensor.sm_clock_max_hz()),
        mem_clock_hz=take("mem_clock_hz", sensor.mem_clock_hz()),
        power_w=take("power_w", sensor.power_w()),
        power_limit_w=take("power_limit_w", sensor.power_limit_w()),
        power_limit_default_w=take("power_limit_default_w", sensor.power_limit_default_w()),
        temperature_c=take("temperature_c", sensor.temperature_c()),
        temperature_slowdown_c=take("temperature_slowdown_c", sensor.temperature_slowdown_c()),
        throttle_reasons=take("throttle_reasons", sensor.throttle_reasons()),
        persistence=take("persistence", sensor.persistence()),
        compute_mode=take("compute_mode", sensor.compute_mode()),
        ecc=take("ecc", sensor.ecc()),
        mig=take("mig", sensor.mig()),
        foreign=people.foreign(sensor, notes),
    )


def _host(root: Path, steal: host.HostValue[float], notes: _Notes) -> HostConditions:
    available, _ = host.memory_bytes(root)

    def take(name: str, value: host.HostValue[T]) -> T | None:
        return notes.take(f"host.{name}", value)

    return HostConditions(
        load1=take("load1", host.load1(root)),
        cores_available=take("cores_available", host.cores_available(root)),
        cores_total=take("cores_total", host.cores_total(root)),
        steal=take("steal", steal),
        governor=take("governor", host.governor(root)),
        mem_available_bytes=take("mem_available_bytes", available),
        container=take("container", host.container(root)),
        mem_pressure=take("mem_pressure", host.memory_pressure(root)),
    )
