"""The one boundary to NVML: its errors become values here and nowhere else.

A card is found by UUID or PCI id, never by index: CUDA_VISIBLE_DEVICES reorders what a process sees, NVML's order
is that of the bus. The package is `nvidia-ml-py`; its module is called `pynvml`, and so is that of another package.
Units: fractions 0…1, Hz, bytes, W, J, °C. Source: NVML API reference, `nvml.h`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from kdaprof.instruments.device import DeviceTraits
from kdaprof.instruments.nvml_codes import decode_event_reasons, failure
from kdaprof.instruments.reading import Missing, Reading, missing
from kdaprof.instruments.sensor import BufferedSample, GpuProcess, MemoryUse, ProcessUtilisation, Utilisation

T = TypeVar("T")

_REQUIRED = ("nvmlInit", "nvmlShutdown", "NVMLError", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUtilizationRates")

_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
_CLOCK_SM, _CLOCK_MEM = 1, 2
_TEMPERATURE_GPU, _THRESHOLD_SLOWDOWN = 0, 1
_GPU_UTILIZATION_SAMPLES = 1


class Nvml:
    """An initialised NVML. Make it with `open_nvml`; `close` when done."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def call(self, function: str, *args: Any) -> Reading[Any]:
        """Call `function` of the module; any failure comes back as a reason, never as an exception."""
        fn = getattr(self._module, function, None)
        if fn is None:
            return missing("function-missing", f"this nvidia-ml-py has no {function}")
        try:
            return Reading(fn(*args))
        except Exception as error:  # the boundary: also ctypes', decoding and version errors of the module
            return failure(function, error)

    def constant(self, name: str) -> Any:
        """A constant or structure of the module, None where it has none."""
        return getattr(self._module, name, None)

    def driver_version(self) -> Reading[str]:
        """The kernel driver's version, such as `580.159.04`."""
        return self.call("nvmlSystemGetDriverVersion")

    def nvml_version(self) -> Reading[str]:
        """The library's version."""
        return self.call("nvmlSystemGetNVMLVersion")

    def device(self, uuid: str | None, pci_bus_id: str | None = None) -> Reading[NvmlDevice]:
        """The card with this UUID (with or without `GPU-` / `MIG-`), else the one at this PCI id."""
        failures: list[tuple[str, Missing]] = []
        tries = [("nvmlDeviceGetHandleByUUID", candidate) for candidate in _uuid_candidates(uuid)]
        if pci_bus_id is not None:
            tries.append(("nvmlDeviceGetHandleByPciBusId", pci_bus_id))
        for function, identity in tries:
            handle = self.call(function, identity)
            if handle.value is not None:
                own = self.call("nvmlDeviceGetUUID", handle.value).value
                return Reading(NvmlDevice(self, handle.value, own or uuid))
            if handle.missing:
                failures.append((identity, handle.missing))
        if not failures:
            return missing("not-found", "neither a UUID nor a PCI id is known for this device")
        # A lost card answers "lost" under one of its names and "not found" under the others.
        _, worst = min(failures, key=lambda failure: failure[1].kind != "gpu-lost")
        names = " or ".join(identity for identity, _ in failures)
        return missing(worst.kind, f"NVML gives no card {names}: {worst.reason}")

    def devices(self) -> tuple[Reading[NvmlDevice], ...]:
        """Every card of the machine, one failing card among them as its own reason."""
        count = self.call("nvmlDeviceGetCount").value or 0
        found: list[Reading[NvmlDevice]] = []
        for index in range(count):
            handle = self.call("nvmlDeviceGetHandleByIndex", index)
            if handle.value is None:
                found.append(Reading(None, handle.missing))
            else:
                uuid = self.call("nvmlDeviceGetUUID", handle.value).value
                found.append(Reading(NvmlDevice(self, handle.value, uuid)))
        return tuple(found)

    def close(self) -> None:
        """Shut NVML down; its reference count is per process, so other users keep theirs."""
        self.call("nvmlShutdown")


class NvmlDevice:
    """One card, or one MIG instance, through NVML."""

    def __init__(self, nvml: Nvml, handle: Any, uuid: str | None) -> None:
        self.nvml = nvml
        self.handle = handle
        self.uuid = uuid
        self._mig: Reading[bool] | None = None

    def _get(self, function: str, convert: Callable[[Any], T], *args: Any) -> Reading[T]:
        reading = self.nvml.call(function, self.handle, *args)
        if reading.value is None:
            return Reading(None, reading.missing) if reading.missing else missing("no-data", f"{function}: none")
        try:
            return Reading(convert(reading.value))
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            return missing("failed", f"{function} gave an answer that cannot be read: {error}")

    def name(self) -> Reading[str]:
        """The card's product name."""
        return self._get("nvmlDeviceGetName", str)

    def pci_bus_id(self) -> Reading[str]:
        """`domain:bus:device.function`."""
        return self._get("nvmlDeviceGetPciInfo", lambda info: _text(info.busId))

    def utilisation(self) -> Reading[Utilisation]:
        """NVML's own average. While MIG is on there is no such figure, and some drivers say 0: that is missing."""
        if self.mig().value:
            return missing("not-supported", "utilisation is not defined while MIG is on")
        return self._get(
            "nvmlDeviceGetUtilizationRates", lambda rates: Utilisation(rates.gpu / 100, rates.memory / 100)
        )

    def memory(self) -> Reading[MemoryUse]:
        """Used and total framebuffer."""
        return self._get("nvmlDeviceGetMemoryInfo", lambda info: MemoryUse(int(info.used), int(info.total)))

    def sm_clock_hz(self) -> Reading[int]:
        """SM clock now."""
        return self._get("nvmlDeviceGetClockInfo", _mhz, _CLOCK_SM)

    def sm_clock_max_hz(self) -> Reading[int]:
        """The highest SM clock of the card."""
        return self._get("nvmlDeviceGetMaxClockInfo", _mhz, _CLOCK_SM)

    def mem_clock_hz(self) -> Reading[int]:
        """Memory clock now."""
        return self._get("nvmlDeviceGetClockInfo", _mhz, _CLOCK_MEM)

    def power_w(self) -> Reading[float]:
        """Board power; an average over 1 s on Ampere and later."""
        return self._get("nvmlDeviceGetPowerUsage", _milli)

    def power_limit_w(self) -> Reading[float]:
        """The limit in force."""
        return self._get("nvmlDeviceGetEnforcedPowerLimit", _milli)

    def power_limit_default_w(self) -> Reading[float]:
        """The limit the card was shipped with."""
        return self._get("nvmlDeviceGetPowerManagementDefaultLimit", _milli)

    def energy_j(self) -> Reading[float]:
        """Energy since the driver was loaded."""
        return self._get("nvmlDeviceGetTotalEnergyConsumption", _milli)

    def temperature_c(self) -> Reading[int]:
        """Temperature of the GPU."""
        return self._get("nvmlDeviceGetTemperature", int, _TEMPERATURE_GPU)

    def temperature_slowdown_c(self) -> Reading[int]:
        """Temperature at which the hardware slows down."""
        return self._get("nvmlDeviceGetTemperatureThreshold", int, _THRESHOLD_SLOWDOWN)

    def throttle_reasons(self) -> Reading[tuple[str, ...]]:
        """Names of the clock event reasons that hold now; an empty tuple is a value. An old driver has the old name."""
        reading = self._get("nvmlDeviceGetCurrentClocksEventReasons", decode_event_reasons)
        if reading.missing and reading.missing.kind == "function-missing":
            return self._get("nvmlDeviceGetCurrentClocksThrottleReasons", decode_event_reasons)
        return reading

    def persistence(self) -> Reading[bool]:
        """Whether the driver stays loaded without clients."""
        return self._get("nvmlDeviceGetPersistenceMode", bool)

    def compute_mode(self) -> Reading[str]:
        """Who may use the card: default, exclusive_process, prohibited."""
        return self._get("nvmlDeviceGetComputeMode", lambda mode: _COMPUTE_MODES[mode])

    def ecc(self) -> Reading[bool]:
        """Whether ECC is on."""
        return self._get("nvmlDeviceGetEccMode", lambda modes: bool(modes[0]))

    def mig(self) -> Reading[bool]:
        """Whether MIG is on; a MIG instance is itself the answer. It changes with a reset only: asked once."""
        if self.uuid is not None and self.uuid.startswith("MIG-"):
            return Reading(True)
        if self._mig is not None:
            return self._mig
        reading = self._get("nvmlDeviceGetMigMode", lambda modes: bool(modes[0]))
        if reading.missing is None or reading.missing.kind == "not-supported":
            self._mig = reading
        return reading

    def processes(self) -> Reading[tuple[GpuProcess, ...]]:
        """Compute and graphics processes, each once.

        Inside a container the list may be empty or hold another namespace's ids.
        """
        compute = self._get("nvmlDeviceGetComputeRunningProcesses", _processes)
        if compute.value is None:
            return compute
        # A desktop's or a game's; a card without graphics has no such list.
        graphics = self._get("nvmlDeviceGetGraphicsRunningProcesses", _processes).value or ()
        known = {process.pid for process in compute.value}
        return Reading((*compute.value, *(process for process in graphics if process.pid not in known)))

    def process_utilisation(self) -> Reading[tuple[ProcessUtilisation, ...]]:
        """SM share a process, of the driver's last samples; `no-data` and `not-found` mean that nobody ran."""
        reading = self._get(
            "nvmlDeviceGetProcessUtilization",
            lambda found: tuple(ProcessUtilisation(int(p.pid), min(p.smUtil, 100) / 100) for p in found),
            0,
        )
        if reading.missing and reading.missing.kind in ("not-found", "no-data"):
            return Reading(())
        return reading

    def buffered_utilisation(self, after_unix_ns: int) -> Reading[tuple[BufferedSample, ...]]:
        """The driver's buffer of utilisation since then, at its own rate; nothing new is an empty tuple."""
        if self.mig().value:
            return missing("not-supported", "utilisation is not defined while MIG is on")
        reading = self._get("nvmlDeviceGetSamples", _buffered, _GPU_UTILIZATION_SAMPLES, after_unix_ns // 1000)
        if reading.missing and reading.missing.kind in ("not-found", "no-data"):
            return Reading(())
        return reading


def open_nvml(load: Callable[[], Any] | None = None) -> Reading[Nvml]:
    """NVML, initialised; or why there is none. `load` gives the module, for tests."""
    try:
        module = load() if load else importlib.import_module("pynvml")
    except ImportError as error:
        return missing("library-absent", f"nvidia-ml-py cannot be imported ({error}): pip install nvidia-ml-py")
    absent = [name for name in _REQUIRED if not hasattr(module, name)]
    if absent:
        return missing(
            "foreign-module",
            f"the installed module pynvml is not nvidia-ml-py (it has no {', '.join(absent)}): "
            "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py",
        )
    nvml = Nvml(module)
    started = nvml.call("nvmlInit")
    return Reading(None, started.missing) if started.missing else Reading(nvml)


def open_gpu(traits: DeviceTraits, load: Callable[[], Any] | None = None) -> Reading[NvmlDevice]:
    """The NVML handle of the card that torch calls `traits`: by UUID, else by PCI id."""
    nvml = open_nvml(load)
    if nvml.value is None:
        return Reading(None, nvml.missing)
    return nvml.value.device(traits.uuid, traits.pci_bus_id)


def _processes(found: Any) -> tuple[GpuProcess, ...]:
    return tuple(GpuProcess(int(p.pid), None if p.usedGpuMemory is None else int(p.usedGpuMemory)) for p in found)


def _buffered(answer: Any) -> tuple[BufferedSample, ...]:
    _, samples = answer  # the type of the value, and the samples; utilisation is an unsigned int
    return tuple(
        BufferedSample(int(sample.timeStamp) * 1000, min(int(sample.sampleValue.uiVal), 100) / 100)
        for sample in samples
        if sample.timeStamp
    )


def _uuid_candidates(uuid: str | None) -> tuple[str, ...]:
    if not uuid:
        return ()
    # torch gives the bare UUID of a card and of a MIG instance alike; NVML wants to be told which it is.
    return (uuid,) if uuid.startswith(("GPU-", "MIG-")) else (f"GPU-{uuid}", f"MIG-{uuid}")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _mhz(value: int) -> int:
    return int(value) * 1_000_000


def _milli(value: int) -> float:
    return int(value) / 1000
