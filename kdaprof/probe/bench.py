"""What a probe measures with: every instrument behind its seam, passed in, so that a test can hand over fakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kdaprof.instruments.allocator import Allocator
from kdaprof.instruments.clock import Clock
from kdaprof.instruments.device import Device
from kdaprof.instruments.nvtx import Ranges
from kdaprof.instruments.reading import Reading
from kdaprof.instruments.sensor import GpuSensor
from kdaprof.runs.util import UtilReading

ClockReader = Callable[[], int | None]
"""SM clock in Hz, or None where NVML cannot say."""

SustainedSampler = Callable[[Callable[[], None]], tuple[UtilReading, ...]]
"""Samples the GPU's utilisation while the given loop runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The instruments of one process."""

    device: Device
    clock: Clock
    allocator: Allocator
    ranges: Ranges
    sensor: Reading[GpuSensor]
    sm_clock: ClockReader
    clock_resolution_ns: int
    sample_while: SustainedSampler | None
    beside: Callable[[int], None] | None = None
    """Called behind each timed execution of a round with when it began: what else is read for it."""
