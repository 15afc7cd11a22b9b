"""What NVML's numbers mean: return codes as kinds of a missing value, bits as names of clock event reasons."""

from __future__ import annotations

from typing import Any

from kdaprof.instruments.reading import MissingKind, Reading, missing

# Return codes of nvml.h; they are part of its ABI, so a foreign or an old module cannot change them.
_KINDS: dict[int, MissingKind] = {
    1: "driver-absent",
    3: "not-supported",
    4: "no-permission",
    6: "not-found",
    9: "driver-absent",
    12: "library-absent",
    13: "function-missing",
    15: "gpu-lost",
    16: "gpu-lost",
    18: "driver-mismatch",
    21: "no-data",
    25: "function-missing",
    26: "not-supported",
    28: "gpu-lost",
}

_HINTS: dict[MissingKind, str] = {
    "library-absent": "no NVIDIA driver library (libnvidia-ml) on this machine",
    "driver-absent": "the NVIDIA kernel driver is not loaded",
    "driver-mismatch": "library and kernel driver differ: reboot, or reload the driver",
    "function-missing": "not in this driver's NVML",
    "gpu-lost": "the card fell off the bus or needs a reset",
    "no-permission": "needs more permissions",
}

_EVENT_REASONS = (
    (0x001, "gpu_idle"),
    (0x002, "applications_clocks_setting"),
    (0x004, "sw_power_cap"),
    (0x008, "hw_slowdown"),
    (0x010, "sync_boost"),
    (0x020, "sw_thermal_slowdown"),
    (0x040, "hw_thermal_slowdown"),
    (0x080, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
)


def decode_event_reasons(bits: int) -> tuple[str, ...]:
    """Names of the set bits of `nvmlClocksEventReasons`; a bit without a name is given as its number."""
    names = [name for bit, name in _EVENT_REASONS if bits & bit]
    rest = bits & ~sum(bit for bit, _ in _EVENT_REASONS)
    return (*names, f"unknown_{rest:#x}") if rest else tuple(names)


def failure(function: str, error: Exception) -> Reading[Any]:
    """A failed call as a missing value, with NVML's words and a hint."""
    code = getattr(error, "value", None)
    kind: MissingKind = _KINDS.get(code, "failed") if isinstance(code, int) else "failed"
    if type(error).__name__ == "NVMLLibraryMismatchError":
        kind = "function-missing"
    words = " ".join(str(error).split()) or type(error).__name__
    hint = f" ({_HINTS[kind]})" if kind in _HINTS else ""
    return missing(kind, f"{function}: {words}{hint}")
