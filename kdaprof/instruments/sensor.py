"""What kdaprof asks of one card, as values and as a seam: NVML stands behind it, or a fake in tests.

Units: fractions 0…1, Hz, bytes, W, J, °C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kdaprof.instruments.reading import Reading


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Share of NVML's last window (1/6 to 1 s) in which a kernel ran, and in which memory was read or written."""

    gpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Framebuffer bytes, everybody's."""

    used_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A compute process on the card; `pid` in the driver's namespace, `used_bytes` None where it is withheld."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class ProcessUtilisation:
    """Share of SM time that one process had lately, 0…1."""

    pid: int
    util: float


@dataclass(frozen=True, slots=True)
class BufferedSample:
    """One entry of the driver's own buffer of utilisation: unix time in ns, and the fraction."""

    unix_ns: int
    util: float


class GpuSensor(Protocol):
    """What kdaprof asks of one card. Every method returns a value or a reason, and raises nothing."""

    @property
    def uuid(self) -> str | None:
        """`GPU-…` or `MIG-…`."""
        ...

    def name(self) -> Reading[str]:
        """The card's product name."""
        ...

    def pci_bus_id(self) -> Reading[str]:
        """`domain:bus:device.function`."""
        ...

    def utilisation(self) -> Reading[Utilisation]:
        """The driver's own average."""
        ...

    def memory(self) -> Reading[MemoryUse]:
        """Used and total framebuffer."""
        ...

    def sm_clock_hz(self) -> Reading[int]:
        """SM clock now."""
        ...

    def sm_clock_max_hz(self) -> Reading[int]:
        """The card's highest SM clock."""
        ...

    def mem_clock_hz(self) -> Reading[int]:
        """Memory clock now."""
        ...

    def power_w(self) -> Reading[float]:
        """Board power."""
        ...

    def power_limit_w(self) -> Reading[float]:
        """The power limit in force."""
        ...

    def power_limit_default_w(self) -> Reading[float]:
        """The power limit it was shipped with."""
        ...

    def energy_j(self) -> Reading[float]:
        """Energy since the driver was loaded."""
        ...

    def temperature_c(self) -> Reading[int]:
        """Temperature of the GPU."""
        ...

    def temperature_slowdown_c(self) -> Reading[int]:
        """Temperature at which it slows down."""
        ...

    def throttle_reasons(self) -> Reading[tuple[str, ...]]:
        """Clock event reasons that hold now; empty is a value."""
        ...

    def persistence(self) -> Reading[bool]:
        """Whether the driver stays loaded without clients."""
        ...

    def compute_mode(self) -> Reading[str]:
        """Who may use the card."""
        ...

    def ecc(self) -> Reading[bool]:
        """Whether ECC is on."""
        ...

    def mig(self) -> Reading[bool]:
        """Whether MIG is on."""
        ...

    def processes(self) -> Reading[tuple[GpuProcess, ...]]:
        """Compute and graphics processes on the card."""
        ...

    def process_utilisation(self) -> Reading[tuple[ProcessUtilisation, ...]]:
        """SM share a process, lately."""
        ...

    def buffered_utilisation(self, after_unix_ns: int) -> Reading[tuple[BufferedSample, ...]]:
        """What the driver sampled by itself since then, in order of time."""
        ...
