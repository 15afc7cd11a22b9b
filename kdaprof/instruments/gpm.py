"""GPM: the card's own counters of SM, tensor, DRAM, PCIe and NVLink activity (Hopper and later), through NVML.

A figure is the difference of two samples, so the first reading only starts the series.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kdaprof.instruments.nvml import NvmlDevice
from kdaprof.instruments.reading import Reading, missing

# NVML_GPM_METRIC_* of nvml.h, and how many of its units make one of ours: percent, MiB a second.
_PERCENT, _MIB = 100.0, 1 / (1 << 20)
_METRICS = (
    ("graphics", 1, _PERCENT),
    ("sm", 2, _PERCENT),
    ("occupancy", 3, _PERCENT),
    ("tensor", 5, _PERCENT),
    ("dram", 10, _PERCENT),
    ("pcie_tx_bytes_per_s", 20, _MIB),
    ("pcie_rx_bytes_per_s", 21, _MIB),
    ("nvlink_rx_bytes_per_s", 60, _MIB),
    ("nvlink_tx_bytes_per_s", 61, _MIB),
)
_GET_VERSION = 1


@dataclass(frozen=True, slots=True)
class GpmActivity:
    """Fractions 0…1 and bytes a second since the last reading; a metric that this card does not give is None."""

    graphics: float | None
    sm: float | None
    occupancy: float | None
    dram: float | None
    tensor: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None


class GpmMeter:
    """Two sample buffers, swapped at each reading. `close` frees them."""

    def __init__(self, device: NvmlDevice) -> None:
        self._nvml = device.nvml
        self._handle = device.handle
        self._old: Any = None
        self._new: Any = None
        self._request: Any = None
        self._broken = False
        self._ready = self._open(device)

    def _open(self, device: NvmlDevice) -> Reading[bool]:
        if device.uuid is not None and device.uuid.startswith("MIG-"):
            return missing("not-supported", "GPM of a MIG instance is not read")
        support = self._nvml.call("nvmlGpmQueryDeviceSupport", self._handle)
        if support.value is None:
            return Reading(None, support.missing)
        # nvidia-ml-py returns the structure in some versions and its flag in others.
        if not getattr(support.value, "isSupportedDevice", support.value):
            return missing("not-supported", "this card has no GPM counters (Hopper and later have)")
        structure = self._nvml.constant("c_nvmlGpmMetricsGet_t")
        if structure is None:
            return missing("function-missing", "this nvidia-ml-py has no GPM structures")
        self._request = structure()
        for name in ("_old", "_new"):
            buffer = self._nvml.call("nvmlGpmSampleAlloc")
            if buffer.value is None:
                return Reading(None, buffer.missing)
            setattr(self, name, buffer.value)
        first = self._nvml.call("nvmlGpmSampleGet", self._handle, self._old)
        return Reading(None, first.missing) if first.missing else Reading(True)

    @property
    def missing(self) -> str | None:
        """Why this card gives no GPM; None where it does."""
        return self._ready.reason

    def read(self) -> Reading[GpmActivity]:
        """Activity since the last reading, whatever that one gave; closer than about 100 ms there may be no data.

        Where the last one failed to take a sample, this one starts the series again and has no figure.
        """
        if self._ready.value is None:
            return Reading(None, self._ready.missing)
        taken = self._nvml.call("nvmlGpmSampleGet", self._handle, self._new)
        broken, self._broken = self._broken, taken.missing is not None
        if taken.missing:
            return Reading(None, taken.missing)
        if broken:
            self._old, self._new = self._new, self._old
            return missing("no-data", "the GPM sample before this one failed: the series starts again")
        request = self._request
        request.version = _GET_VERSION
        request.numMetrics = len(_METRICS)
        request.sample1, request.sample2 = self._old, self._new
        for slot, (_, metric, _) in enumerate(_METRICS):
            request.metrics[slot].metricId = metric
        got = self._nvml.call("nvmlGpmMetricsGet", request)
        self._old, self._new = self._new, self._old
        if got.missing:
            return Reading(None, got.missing)
        values = {name: _value(request.metrics[slot], scale) for slot, (name, _, scale) in enumerate(_METRICS)}
        if all(value is None for value in values.values()):
            return missing("no-data", "GPM gave no figure for this interval")
        return Reading(GpmActivity(**values))

    def close(self) -> None:
        """Free both samples; a second call does nothing."""
        for buffer in (self._old, self._new):
            if buffer is not None:
                self._nvml.call("nvmlGpmSampleFree", buffer)
        self._old = self._new = None
        self._ready = missing("no-data", "the GPM meter is closed")


def _value(metric: Any, scale: float) -> float | None:
    if metric.nvmlReturn != 0 or not math.isfinite(metric.value):
        return None
    return float(metric.value) / scale
