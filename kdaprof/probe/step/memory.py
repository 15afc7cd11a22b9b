"""Steps in a row under the memory history, then steps in turns with a warm and an emptied pool."""

from __future__ import annotations

from kdaprof.instruments.device import Device
from kdaprof.instruments.memory_history import CudaMemoryHistory, MemoryHistory
from kdaprof.instruments.timing import time_call
from kdaprof.probe.bench import Bench
from kdaprof.probe.series import Series
from kdaprof.runs.memory import StepMemory

STEPS, PAIRS = 8, 5


def history_of(device: Device) -> MemoryHistory | None:
    """The history of a device; the CPU's allocator keeps none."""
    return CudaMemoryHistory(device.index) if device.kind == "cuda" and device.index is not None else None


def step_memory(series: Series, bench: Bench, history: MemoryHistory) -> StepMemory | None:
    """What the steps of a series do to the pool; None where the device counts nothing."""
    if bench.allocator.read() is None:
        return None
    # What was timed before left its blocks: in a pool that is larger than the step's own, a leak would not show.
    history.empty()
    _step(series, bench)
    before = bench.allocator.read()
    assert before is not None
    allocs, held, reserved, peak = [], [], [], 0
    with history.recording() as found:
        for _ in range(STEPS):
            bench.allocator.reset_peak()
            _step(series, bench)
            after = bench.allocator.read()
            assert after is not None  # it counted a moment ago
            allocs.append(after.allocs - before.allocs)
            held.append(after.current_bytes)
            reserved.append(after.reserved_bytes)
            peak, before = max(peak, after.peak_bytes), after
    warm, emptied = [], []
    for _ in range(PAIRS):
        _step(series, bench)  # the pool is full again, and the host has just run a step
        warm.append(_timed(series, bench))
        history.empty()
        emptied.append(_timed(series, bench))
    return StepMemory(
        allocs=tuple(allocs),
        held_bytes=tuple(held),
        reserved_bytes=tuple(reserved),
        peak_bytes=peak,
        pool=found.pool,
        sites=found.sites,
        warm_wall_ns=tuple(warm),
        emptied_wall_ns=tuple(emptied),
        missing=found.missing,
    )


def _step(series: Series, bench: Bench) -> None:
    series.case.prepare(series.next_input())
    series.case.run()
    bench.device.synchronize()


def _timed(series: Series, bench: Bench) -> int:
    series.case.prepare(series.next_input())
    return time_call(series.case.run, bench.device, bench.clock).wall_ns
