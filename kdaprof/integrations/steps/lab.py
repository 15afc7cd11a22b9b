"""What a `StepProfiler` reaches for outside its own code, passed in: device, clock, marks, counters, machine."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kdaprof.instruments import environment
from kdaprof.instruments.allocator import Allocator, allocator_of
from kdaprof.instruments.clock import Clock, MonotonicClock, resolution_ns
from kdaprof.instruments.conditions import BUSY_WINDOW_NS, snapshot
from kdaprof.instruments.cuda_device import open_device
from kdaprof.instruments.device import Device
from kdaprof.instruments.nvml import open_nvml
from kdaprof.instruments.nvtx import Ranges, open_ranges
from kdaprof.instruments.steps.borders import Borders, NoBorders
from kdaprof.instruments.steps.cuda_borders import CudaBorders
from kdaprof.instruments.steps.window import KinetoProfiler, MakeProfiler
from kdaprof.kda.ledger import Counters, counters, gate_records
from kdaprof.probe.benches import sensor_of
from kdaprof.runs.conditions import ConditionsSnapshot
from kdaprof.runs.environment import Environment, Secrets

NO_MARKS = "the loop runs on the CPU: there are no device events"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLab:
    """The seams of a profiler; `open_loop_lab` gives the real ones. `snapshot(True)` watches a card for a second.

    `traced` says how often each path was traced into a compiled region; the region's runs count in no `counters`.
    """

    device: Device
    clock: Clock
    borders: Borders
    ranges: Ranges
    allocator: Allocator
    counters: Callable[[], Counters]
    traced: Callable[[], Mapping[str, int]]
    snapshot: Callable[[bool], ConditionsSnapshot]
    environment: Callable[[], Environment]
    secrets: Callable[[], Secrets]
    make_profiler: MakeProfiler
    clock_resolution_ns: int


def open_loop_lab(name: str = "auto") -> LoopLab:
    """The real instruments on device `name`: `auto` (the current CUDA device, else the CPU), `cpu`, `cuda`, `cuda:N`.

    Errors: UsageError for another name, UnavailableError for a device that is not there.
    """
    device, clock = open_device(name), MonotonicClock()
    sensor = sensor_of(device)
    on_gpu = device.kind == "cuda"

    def look(careful: bool) -> ConditionsSnapshot:
        return snapshot(sensor, clock, busy_window_ns=BUSY_WINDOW_NS if careful and on_gpu else 0)

    def collect() -> Environment:
        return environment.collect(
            argv=tuple(sys.argv),
            device=device.traits if on_gpu else None,
            device_missing=None if on_gpu else "the run used the CPU",
            nvml=open_nvml(),
        )

    return LoopLab(
        device=device,
        clock=clock,
        borders=CudaBorders(device.index or 0) if on_gpu else NoBorders(NO_MARKS),
        ranges=open_ranges(),
        allocator=allocator_of(device),
        counters=counters,
        traced=_traced,
        snapshot=look,
        environment=collect,
        secrets=environment.secrets,
        make_profiler=KinetoProfiler,
        clock_resolution_ns=resolution_ns(clock),
    )


def _traced() -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for tally in gate_records():
        found[tally.decision.chosen] += tally.traced
    return found
