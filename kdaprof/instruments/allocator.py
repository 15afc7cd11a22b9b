"""The caching allocator's counters, by the cheap way. Importing this module imports torch.

`torch.cuda.memory_stats()` takes 127 µs on an H200, mostly to flatten and sort its keys; the C call under it takes
19 µs. Even that is read outside the timed part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from kdaprof.instruments.device import Device


@dataclass(frozen=True, slots=True)
class AllocatorCounters:
    """Counters of one device since the process began.

    `allocs` allocations asked of the caching allocator, `alloc_bytes` their bytes (rounded up to 512 as torch
    does), `peak_bytes` highest bytes held by tensors since the last reset, `current_bytes` held now,
    `reserved_bytes` held by torch from the driver now, private pools of graphs included,
    `driver_allocs` segments asked of the driver.
    """

    allocs: int
    alloc_bytes: int
    peak_bytes: int
    current_bytes: int
    reserved_bytes: int
    driver_allocs: int = 0


@dataclass(frozen=True, slots=True)
class AllocatorDelta:
    """What one region did: allocations and their bytes, and growth of the reserved memory.

    `peak_bytes` is the highest level reached above what was held at the start: inputs are not in it, outputs are.
    """

    allocs: int
    alloc_bytes: int
    peak_bytes: int
    reserved_growth_bytes: int
    driver_allocs: int = 0


class Allocator(Protocol):
    """Reads and resets the counters. `read` is None where the device keeps none; `missing` then says why."""

    @property
    def missing(self) -> str | None:
        """Why there are no counters; None where there are."""
        ...

    def read(self) -> AllocatorCounters | None:
        """The counters now."""
        ...

    def reset_peak(self) -> None:
        """Set the peak to what is held now."""
        ...


class CudaAllocator:
    """torch's caching allocator of one CUDA device."""

    missing: str | None = None

    def __init__(self, device_index: int) -> None:
        self._index = device_index

    def read(self) -> AllocatorCounters | None:
        """The counters now, in one C call (19 µs on an H200)."""
        stats = torch._C._cuda_memoryStats(self._index)
        held = stats["allocated_bytes"]["all"]
        return AllocatorCounters(
            allocs=stats["allocation"]["all"]["allocated"],
            alloc_bytes=held["allocated"],
            peak_bytes=held["peak"],
            current_bytes=held["current"],
            reserved_bytes=stats["reserved_bytes"]["all"]["current"],
            driver_allocs=stats["segment"]["all"]["allocated"],
        )

    def reset_peak(self) -> None:
        """Set the peak to what is held now."""
        torch._C._cuda_resetPeakMemoryStats(self._index)


class NoAllocator:
    """A device without a caching allocator."""

    def __init__(self, missing: str) -> None:
        self.missing: str | None = missing

    def read(self) -> AllocatorCounters | None:
        """Always None."""
        return None

    def reset_peak(self) -> None:
        """Nothing to reset."""


def allocator_of(device: Device) -> Allocator:
    """The allocator of a device; the CPU's allocator counts nothing."""
    if device.kind == "cuda" and device.index is not None:
        return CudaAllocator(device.index)
    return NoAllocator("torch counts no allocations on the CPU")


def delta(before: AllocatorCounters | None, after: AllocatorCounters | None) -> AllocatorDelta | None:
    """From `before` to `after`, the peak reset at `before`; None when either is missing."""
    if before is None or after is None:
        return None
    return AllocatorDelta(
        allocs=after.allocs - before.allocs,
        alloc_bytes=after.alloc_bytes - before.alloc_bytes,
        peak_bytes=after.peak_bytes - before.current_bytes,
        reserved_growth_bytes=after.reserved_bytes - before.reserved_bytes,
        driver_allocs=after.driver_allocs - before.driver_allocs,
    )
