"""The real instruments of this process, put together."""

from __future__ import annotations

from collections.abc import Callable

from kdaprof.instruments.allocator import allocator_of
from kdaprof.instruments.clock import MonotonicClock, resolution_ns
from kdaprof.instruments.cuda_device import open_device
from kdaprof.instruments.device import Device
from kdaprof.instruments.gpm import GpmMeter
from kdaprof.instruments.gpu_util import Sampler
from kdaprof.instruments.nvml import NvmlDevice, open_gpu
from kdaprof.instruments.nvtx import open_ranges
from kdaprof.instruments.reading import Reading, missing
from kdaprof.probe.bench import Bench
from kdaprof.runs.util import UtilReading

SAMPLING_HZ = 20.0


def sensor_of(device: Device) -> Reading[NvmlDevice]:
    """NVML's view of the CUDA device, found by UUID; the reason where there is none."""
    if device.kind != "cuda":
        return missing("not-found", "no CUDA device")
    return open_gpu(device.traits)


def make_bench(name: str, *, util: bool = True, hz: float = SAMPLING_HZ) -> Bench:
    """Open the device `name` (`cpu`, `cuda:N`) and everything that watches it."""
    device, clock = open_device(name), MonotonicClock()
    sensor = sensor_of(device)
    card = sensor.value

    def sm_clock() -> int | None:
        return card.sm_clock_hz().value if card is not None else None

    return Bench(
        device=device,
        clock=clock,
        allocator=allocator_of(device),
        ranges=open_ranges(),
        sensor=Reading(card, sensor.missing),
        sm_clock=sm_clock,
        clock_resolution_ns=resolution_ns(clock),
        sample_while=_sampler(card, clock, hz) if card is not None and util else None,
    )


def _sampler(
    card: NvmlDevice, clock: MonotonicClock, hz: float
) -> Callable[[Callable[[], None]], tuple[UtilReading, ...]]:
    def sample_while(loop: Callable[[], None]) -> tuple[UtilReading, ...]:
        meter = GpmMeter(card)
        try:
            with Sampler(card, clock, hz, gpm=meter) as sampler:
                loop()
            return sampler.series.rows
        finally:
            meter.close()

    return sample_while
