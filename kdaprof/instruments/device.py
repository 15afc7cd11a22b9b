"""The device a workload runs on, behind one seam. The CUDA device is in `cuda_device`, which imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from kdaprof.instruments.host import cpu_model

DeviceKind = Literal["cuda", "cpu"]


class EventTimer(Protocol):
    """Two device events around a call. `start` and `stop` only record; `elapsed_ns` needs a synchronise first."""

    def start(self) -> None:
        """Record the first event on the current stream."""
        ...

    def stop(self) -> None:
        """Record the second event on the current stream."""
        ...

    def elapsed_ns(self) -> int | None:
        """Device time between the two, idle included, in ns (resolution 0.5 µs); None without a device."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceTraits:
    """What the runtime says about the device; None where the kind of device has no such figure."""

    name: str
    uuid: str | None
    pci_bus_id: str | None
    capability: tuple[int, int] | None
    sm_count: int | None
    l2_bytes: int | None
    total_memory_bytes: int | None


class Device(Protocol):
    """Where work runs and how to wait for it."""

    @property
    def kind(self) -> DeviceKind:
        """`cuda` or `cpu`."""
        ...

    @property
    def index(self) -> int | None:
        """Index of the CUDA device as this process sees it; None for the CPU."""
        ...

    @property
    def traits(self) -> DeviceTraits:
        """Name, identity and sizes."""
        ...

    def synchronize(self) -> None:
        """Wait until all work issued so far is done."""
        ...

    def event_timer(self) -> EventTimer:
        """The device's pooled event timer; one call at a time."""
        ...


class NoEventTimer:
    """The CPU's event timer: there are no device events, so there is no span."""

    def start(self) -> None:
        """Nothing to record."""

    def stop(self) -> None:
        """Nothing to record."""

    def elapsed_ns(self) -> int | None:
        """Always None."""
        return None


class CpuDevice:
    """The host as the device: nothing to wait for, no device events."""

    kind: DeviceKind = "cpu"
    index: int | None = None

    def __init__(self) -> None:
        self.traits = DeviceTraits(cpu_model() or "cpu", None, None, None, None, None, None)

    def synchronize(self) -> None:
        """CPU work is done when its call returns."""

    def event_timer(self) -> EventTimer:
        """A timer whose span is None."""
        return NoEventTimer()
