"""The state of the machine around a measurement: what may disturb it, and why a value is not known.

Plain data, written to `run.json` under `conditions{before, during, after}`, read back without torch or NVML.
The instrument that fills it is `kdaprof.instruments.conditions`; the rules that judge it (Q03, Q04, Q05) are
in `kdaprof.analysis`.
"""

from __future__ import annotations

from dataclasses import dataclass

# Clock event reasons that hold the clock below what was asked for. An idle card, a fixed application clock and
# sync boost are states somebody chose; these are limits the card ran into.
LIMITING_REASONS = frozenset(
    {
        "sw_power_cap",
        "hw_slowdown",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
    }
)


@dataclass(frozen=True, slots=True)
class MissingField:
    """A value that could not be had: `name` is the path of the field (`gpu.power_w`), `reason` one line."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ForeignProcess:
    """A compute process on the card that is not ours. `used_bytes` and `util` (0…1) may be unknown."""

    pid: int
    name: str | None
    used_bytes: int | None
    util: float | None


@dataclass(frozen=True, slots=True)
class GpuConditions:
    """One card at one moment. Fractions 0…1, clocks in Hz, memory in bytes, power in W, temperature in °C.

    `util_before` is the mean of the utilisation readings taken over the `busy_window_ns` before the snapshot;
    `foreign` is None, with a reason, where process ids cannot be told apart (another pid namespace).
    """

    uuid: str | None
    name: str | None
    pci_bus_id: str | None
    util: float | None
    util_before: float | None
    busy_window_ns: int | None
    mem_used_bytes: int | None
    mem_total_bytes: int | None
    sm_clock_hz: int | None
    sm_clock_max_hz: int | None
    mem_clock_hz: int | None
    power_w: float | None
    power_limit_w: float | None
    power_limit_default_w: float | None
    temperature_c: int | None
    temperature_slowdown_c: int | None
    throttle_reasons: tuple[str, ...] | None
    persistence: bool | None
    compute_mode: str | None
    ecc: bool | None
    mig: bool | None
    foreign: tuple[ForeignProcess, ...] | None


@dataclass(frozen=True, slots=True)
class HostConditions:
    """The host at one moment: load average over 1 min, cores we may use, steal as a fraction of CPU time.

    `mem_pressure` is the share of the last 10 s in which some task waited for memory.
    """

    load1: float | None
    cores_available: int | None
    cores_total: int | None
    steal: float | None
    governor: str | None
    mem_available_bytes: int | None
    container: str | None
    mem_pressure: float | None = None


@dataclass(frozen=True, slots=True)
class ConditionsSnapshot:
    """Card and host at one moment, with a reason for each value that is None."""

    monotonic_ns: int
    unix_ns: int
    gpu: GpuConditions | None
    host: HostConditions
    missing: tuple[MissingField, ...]

    def reason(self, name: str) -> str | None:
        """Why the field at path `name` (`gpu`, `gpu.power_w`, `host.steal`) is None; None where it is not."""
        for field in self.missing:
            if name == field.name or name.startswith(field.name + "."):
                return field.reason
        return None


@dataclass(frozen=True, slots=True)
class Conditions:
    """The snapshots of one run: before the first sample, between cells, and after the last."""

    before: ConditionsSnapshot | None
    during: tuple[ConditionsSnapshot, ...]
    after: ConditionsSnapshot | None
