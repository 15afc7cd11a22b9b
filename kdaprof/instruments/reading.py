"""A value that a sensor may fail to give: the value, or what kind of failure and one line of why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MissingKind = Literal[
    "library-absent",  # no NVML on this machine, or nvidia-ml-py not installed
    "driver-absent",  # NVML is there, the driver is not loaded
    "driver-mismatch",  # library and kernel module are of different versions
    "foreign-module",  # a module named pynvml that is not nvidia-ml-py
    "function-missing",  # this driver or this nvidia-ml-py is too old (or too new) for the call
    "not-supported",  # this card has no such field
    "not-found",  # no such device
    "no-permission",
    "no-data",  # nothing to report yet
    "gpu-lost",  # the card fell off the bus, or needs a reset
    "failed",  # anything else, with NVML's words
]


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there is no value."""

    kind: MissingKind
    reason: str


@dataclass(frozen=True, slots=True)
class Reading(Generic[T_co]):
    """Either `value` or `missing` is set; a reading of 0 is a value."""

    value: T_co | None
    missing: Missing | None = None

    @property
    def reason(self) -> str | None:
        """One line of why there is no value; None where there is one."""
        return self.missing.reason if self.missing else None


def missing(kind: MissingKind, reason: str) -> Reading[T]:
    """A reading without a value."""
    return Reading(None, Missing(kind, reason))
