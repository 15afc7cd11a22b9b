"""The machine that an experiment runs on: its environment once, its conditions before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

from kdaprof.instruments import environment
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.conditions import BUSY_WINDOW_NS, snapshot
from kdaprof.instruments.device import Device
from kdaprof.instruments.nvml import open_nvml
from kdaprof.instruments.reading import Reading, missing
from kdaprof.instruments.sensor import GpuSensor
from kdaprof.runs.conditions import ConditionsSnapshot
from kdaprof.runs.environment import Environment


class Machine(Protocol):
    """What is asked of the machine. The seam that tests replace."""

    def environment(self, command: Sequence[str]) -> Environment:
        """Versions, variables, hardware, settings."""
        ...

    def conditions(self) -> ConditionsSnapshot:
        """Others on the card, clocks, load, now."""
        ...


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """The real one. Without torch, as revisions may be measured, the card is not looked at."""

    device: Device | None
    sensor: Reading[GpuSensor]

    def environment(self, command: Sequence[str]) -> Environment:
        """Versions, variables, hardware, settings."""
        on_gpu = self.device is not None and self.device.kind == "cuda"
        return environment.collect(
            argv=command,
            device=self.device.traits if on_gpu and self.device is not None else None,
            device_missing=None if on_gpu else self.sensor.reason or "the experiment used the CPU",
            nvml=open_nvml(),
        )

    def conditions(self) -> ConditionsSnapshot:
        """The machine after it was watched for a second."""
        return snapshot(self.sensor, MonotonicClock(), busy_window_ns=BUSY_WINDOW_NS)


def this_machine(device: str) -> ThisMachine:
    """Open the card that `device` names, as far as there is one. Errors: UnavailableError, UsageError for a name."""
    if find_spec("torch") is None:
        return ThisMachine(None, missing("not-found", "torch is not installed here: the card is not looked at"))
    from kdaprof.instruments.cuda_device import open_device  # noqa: PLC0415 - imports torch, which may be absent
    from kdaprof.probe.benches import sensor_of  # noqa: PLC0415

    opened = open_device(device)
    found = sensor_of(opened)
    return ThisMachine(opened, Reading(found.value, found.missing))
