"""A card whose readings a test sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kdaprof.instruments.reading import Missing, MissingKind, Reading, missing
from kdaprof.instruments.sensor import BufferedSample, GpuProcess, MemoryUse, ProcessUtilisation, Utilisation


@dataclass
class FakeSensor:
    """A card whose readings are attributes; a `Missing` stands for a failing reading. Utilisation may be a script.

    `utilisations` is consumed one a reading, its last entry for ever after.
    """

    uuid: str | None = "GPU-11111111-2222-3333-4444-555555555555"
    utilisations: list[Utilisation | Missing] = field(default_factory=lambda: [Utilisation(0.0, 0.0)])
    values: dict[str, Any] = field(
        default_factory=lambda: {
            "name": "Fake GPU",
            "pci_bus_id": "00000000:01:00.0",
            "memory": MemoryUse(1 << 30, 80 << 30),
            "sm_clock_hz": 1_980_000_000,
            "sm_clock_max_hz": 1_980_000_000,
            "mem_clock_hz": 3_201_000_000,
            "power_w": 120.0,
            "power_limit_w": 700.0,
            "power_limit_default_w": 700.0,
            "energy_j": 1000.0,
            "temperature_c": 40,
            "temperature_slowdown_c": 95,
            "throttle_reasons": (),
            "persistence": True,
            "compute_mode": "default",
            "ecc": True,
            "mig": False,
            "processes": (),
            "process_utilisation": (),
            "buffered": Missing("not-supported", "no buffer on this card"),
        }
    )

    def fail(self, kind: MissingKind, reason: str, *fields: str) -> FakeSensor:
        """Make these fields (all, without any) fail from now on."""
        for name in fields or tuple(self.values):
            self.values[name] = Missing(kind, reason)
        if not fields or "utilisation" in fields:
            self.utilisations = [Missing(kind, reason)]
        return self

    def _get(self, name: str) -> Reading[Any]:
        value = self.values[name]
        return Reading(None, value) if isinstance(value, Missing) else Reading(value)

    def utilisation(self) -> Reading[Utilisation]:
        """The next of the script."""
        value = self.utilisations.pop(0) if len(self.utilisations) > 1 else self.utilisations[0]
        return Reading(None, value) if isinstance(value, Missing) else Reading(value)

    def name(self) -> Reading[str]:
        """As set."""
        return self._get("name")

    def pci_bus_id(self) -> Reading[str]:
        """As set."""
        return self._get("pci_bus_id")

    def memory(self) -> Reading[MemoryUse]:
        """As set."""
        return self._get("memory")

    def sm_clock_hz(self) -> Reading[int]:
        """As set."""
        return self._get("sm_clock_hz")

    def sm_clock_max_hz(self) -> Reading[int]:
        """As set."""
        return self._get("sm_clock_max_hz")

    def mem_clock_hz(self) -> Reading[int]:
        """As set."""
        return self._get("mem_clock_hz")

    def power_w(self) -> Reading[float]:
        """As set."""
        return self._get("power_w")

    def power_limit_w(self) -> Reading[float]:
        """As set."""
        return self._get("power_limit_w")

    def power_limit_default_w(self) -> Reading[float]:
        """As set."""
        return self._get("power_limit_default_w")

    def energy_j(self) -> Reading[float]:
        """As set."""
        return self._get("energy_j")

    def temperature_c(self) -> Reading[int]:
        """As set."""
        return self._get("temperature_c")

    def temperature_slowdown_c(self) -> Reading[int]:
        """As set."""
        return self._get("temperature_slowdown_c")

    def throttle_reasons(self) -> Reading[tuple[str, ...]]:
        """As set."""
        return self._get("throttle_reasons")

    def persistence(self) -> Reading[bool]:
        """As set."""
        return self._get("persistence")

    def compute_mode(self) -> Reading[str]:
        """As set."""
        return self._get("compute_mode")

    def ecc(self) -> Reading[bool]:
        """As set."""
        return self._get("ecc")

    def mig(self) -> Reading[bool]:
        """As set."""
        return self._get("mig")

    def processes(self) -> Reading[tuple[GpuProcess, ...]]:
        """As set."""
        return self._get("processes")

    def process_utilisation(self) -> Reading[tuple[ProcessUtilisation, ...]]:
        """As set."""
        return self._get("process_utilisation")

    def buffered_utilisation(self, after_unix_ns: int) -> Reading[tuple[BufferedSample, ...]]:
        """Those of the set ones that are later."""
        reading = self._get("buffered")
        if reading.value is None:
            return reading
        return Reading(tuple(sample for sample in reading.value if sample.unix_ns > after_unix_ns))


def no_sensor(reason: str = "no card in this test") -> Reading[FakeSensor]:
    """A card that is not there."""
    return missing("not-found", reason)
