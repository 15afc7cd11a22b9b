"""What kdaprof's own instruments cost on this machine, measured, for the report.

Each figure is the mean of the quietest of several batches: a batch that was preempted says nothing about the cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kdaprof.instruments.allocator import Allocator
from kdaprof.instruments.clock import Clock, clock_pair
from kdaprof.instruments.device import Device
from kdaprof.instruments.nvtx import Ranges
from kdaprof.instruments.reading import Reading
from kdaprof.instruments.sensor import GpuSensor
from kdaprof.instruments.timing import garbage_collection_off, time_call

BATCHES = 5


@dataclass(frozen=True, slots=True)
class OverheadItem:
    """Host time of one use of an instrument, over `n` uses a batch; None with the reason where it is absent."""

    name: str
    ns_per_call: float | None
    n: int
    missing: str | None


def own_overhead(
    *,
    clock: Clock,
    device: Device,
    allocator: Allocator,
    ranges: Ranges,
    sensor: Reading[GpuSensor],
    n: int = 200,
) -> tuple[OverheadItem, ...]:
    """Measure every instrument; one that is absent is listed with its reason. Takes a few ms on a CPU."""
    items = [
        measure("clock_read", clock.now_ns, clock, n),
        measure("clock_pair", lambda: clock_pair(clock), clock, n),
        measure("synchronize_idle", device.synchronize, clock, n),
        measure("time_call_of_nothing", lambda: time_call(_nothing, device, clock), clock, n),
        measure("nvtx_range", lambda: ranges.end(ranges.start("cost", "stage")), clock, n),
        _event_record(device, clock, n),
        _allocator_read(allocator, clock, n),
    ]
    for name, read in _readers(sensor.value):
        if read is None:
            items.append(OverheadItem(name, None, 0, sensor.reason))
        else:
            items.append(measure(name, read, clock, max(1, n // 10)))
    return tuple(items)


def measure(name: str, use: Callable[[], object], clock: Clock, n: int) -> OverheadItem:
    """Mean of the quietest of `BATCHES` batches of `n` uses; the loop around a use is part of it (20 to 40 ns)."""
    use()
    best: int | None = None
    with garbage_collection_off():
        for _ in range(BATCHES):
            start = clock.now_ns()
            for _ in range(n):
                use()
            took = clock.now_ns() - start
            best = took if best is None else min(best, took)
    return OverheadItem(name, None if best is None else best / n, n, None)


def _event_record(device: Device, clock: Clock, n: int) -> OverheadItem:
    if device.kind != "cuda":
        return OverheadItem("event_record", None, 0, "no device events on the CPU")
    timer = device.event_timer()
    item = measure("event_record", timer.start, clock, n)
    device.synchronize()
    return item


def _allocator_read(allocator: Allocator, clock: Clock, n: int) -> OverheadItem:
    if allocator.missing is not None:
        return OverheadItem("allocator_read", None, 0, allocator.missing)
    return measure("allocator_read", allocator.read, clock, n)


def _readers(sensor: GpuSensor | None) -> tuple[tuple[str, Callable[[], object] | None], ...]:
    return (
        ("nvml_utilisation", sensor.utilisation if sensor else None),
        ("nvml_sm_clock", sensor.sm_clock_hz if sensor else None),
        ("nvml_power", sensor.power_w if sensor else None),
    )


def _nothing() -> None:
    return None
