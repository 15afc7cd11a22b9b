"""Everything that can be wrong with NVML, and what a user is told (cases 31 to 34)."""

from __future__ import annotations

import types

import pytest

from kdaprof.instruments.device import DeviceTraits
from kdaprof.instruments.fakes import FakeCard, FakePynvml
from kdaprof.instruments.nvml import NvmlDevice, open_gpu, open_nvml
from kdaprof.instruments.nvml_codes import decode_event_reasons
from kdaprof.instruments.reading import MissingKind
from kdaprof.instruments.sensor import BufferedSample, GpuProcess

FIRST = FakeCard("GPU-aaaa", "00000000:01:00.0", name="first")
SECOND = FakeCard("GPU-bbbb", "00000000:02:00.0", name="second")


def traits(uuid: str | None, pci: str | None = None) -> DeviceTraits:
    return DeviceTraits("as torch calls it", uuid, pci, (9, 0), 132, 1, 1)


def opened(module: FakePynvml, uuid: str = "aaaa") -> NvmlDevice:
    device = open_gpu(traits(uuid), lambda: module).value
    assert device is not None
    return device


def test_the_real_package_without_a_driver_names_what_is_absent() -> None:
    reading = open_nvml()
    if reading.value is not None:
        reading.value.close()
        pytest.skip("this machine has an NVIDIA driver")
    assert reading.missing is not None
    assert reading.missing.kind in ("library-absent", "driver-absent")
    assert "nvmlInit" in reading.missing.reason


def test_package_absent() -> None:
    def load() -> object:
        raise ImportError("No module named 'pynvml'")

    reading = open_nvml(load)
    assert reading.missing is not None
    assert reading.missing.kind == "library-absent"
    assert "pip install nvidia-ml-py" in reading.missing.reason


def test_foreign_module_of_the_same_name() -> None:
    reading = open_nvml(lambda: types.ModuleType("pynvml"))
    assert reading.missing is not None
    assert reading.missing.kind == "foreign-module"
    assert "not nvidia-ml-py" in reading.missing.reason
    assert "pip uninstall pynvml" in reading.missing.reason


def test_a_module_of_the_same_name_that_lacks_lookup_by_uuid() -> None:
    reading = open_nvml(lambda: FakePynvml([FIRST], without=["nvmlDeviceGetHandleByUUID"]))
    assert reading.missing is not None
    assert "nvmlDeviceGetHandleByUUID" in reading.missing.reason


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, "driver-absent"),
        (9, "driver-absent"),
        (12, "library-absent"),
        (18, "driver-mismatch"),
        (4, "no-permission"),
        (999, "failed"),
        (12345, "failed"),
    ],
)
def test_init_that_fails(code: int, kind: MissingKind) -> None:
    reading = open_nvml(lambda: FakePynvml([FIRST], codes={"nvmlInit": code}))
    assert reading.missing is not None
    assert reading.missing.kind == kind


@pytest.mark.parametrize(
    ("uuid", "pci", "name"),
    [
        ("bbbb", None, "second"),  # torch gives the bare UUID
        ("GPU-bbbb", None, "second"),
        ("unknown", "00000000:02:00.0", "second"),  # by PCI id where the UUID is not known
        (None, "00000000:01:00.0", "first"),
    ],
)
def test_a_card_is_found_by_identity_whatever_the_order(uuid: str | None, pci: str | None, name: str) -> None:
    module = FakePynvml([FIRST, SECOND])
    device = open_gpu(traits(uuid, pci), lambda: module).value
    assert device is not None
    assert device.name().value == name
    assert "nvmlDeviceGetHandleByIndex" not in module.calls


def test_a_mig_instance_is_found_and_has_no_utilisation() -> None:
    instance = FakeCard("MIG-cccc", "00000000:03:00.0", util_percent=0)
    device = opened(FakePynvml([FIRST, instance]), "cccc")
    assert device.uuid == "MIG-cccc"
    assert device.mig().value is True
    reading = device.utilisation()
    assert reading.value is None
    assert "MIG" in (reading.reason or "")


def test_utilisation_of_a_card_with_mig_on_is_missing_even_where_the_driver_says_zero() -> None:
    card = FakeCard("GPU-aaaa", "00000000:01:00.0", util_percent=0, mig_mode=1)
    reading = opened(FakePynvml([card])).utilisation()
    assert (reading.value, reading.missing and reading.missing.kind) == (None, "not-supported")


def test_a_card_that_does_not_know_mig_still_has_utilisation() -> None:
    card = FakeCard("GPU-aaaa", "00000000:01:00.0", util_percent=25, mig_mode=None)
    utilisation = opened(FakePynvml([card])).utilisation().value
    assert utilisation is not None
    assert (utilisation.gpu, utilisation.memory) == (0.25, 0.05)


def test_an_unknown_card_is_named() -> None:
    reading = open_gpu(traits("zzzz", "00000000:09:00.0"), lambda: FakePynvml([FIRST]))
    assert reading.missing is not None
    assert reading.missing.kind == "not-found"
    assert "GPU-zzzz" in reading.missing.reason
    assert "00000000:09:00.0" in reading.missing.reason
    nameless = open_gpu(traits(None), lambda: FakePynvml([FIRST]))
    assert "neither a UUID nor a PCI id" in (nameless.reason or "")


def test_a_lost_card_is_lost_and_not_unknown_and_the_other_goes_on() -> None:
    module = FakePynvml([FIRST, SECOND])
    first, second = opened(module, "aaaa"), opened(module, "bbbb")
    module.lose("GPU-aaaa")
    for reading in (first.utilisation(), first.memory(), first.power_w()):
        assert reading.missing is not None
        assert reading.missing.kind == "gpu-lost"
    assert second.utilisation().value is not None
    found = open_gpu(traits("aaaa"), lambda: module)
    assert found.missing is not None
    assert found.missing.kind == "gpu-lost"


def test_one_bad_card_among_several_does_not_hide_the_others() -> None:
    module = FakePynvml([FIRST, SECOND])
    module.lose("GPU-aaaa")
    nvml = open_nvml(lambda: module).value
    assert nvml is not None
    bad, good = nvml.devices()
    assert bad.missing is not None
    assert bad.missing.kind == "gpu-lost"
    assert good.value is not None
    assert good.value.name().value == "second"


@pytest.mark.parametrize(("code", "kind"), [(3, "not-supported"), (13, "function-missing"), (4, "no-permission")])
def test_a_field_that_fails_is_a_reason_and_never_zero(code: int, kind: MissingKind) -> None:
    device = opened(FakePynvml([FIRST], codes={"nvmlDeviceGetPowerUsage": code}))
    reading = device.power_w()
    assert reading.value is None
    assert reading.missing is not None
    assert reading.missing.kind == kind
    assert "nvmlDeviceGetPowerUsage" in reading.missing.reason
    assert device.sm_clock_hz().value == 1_980_000_000


def test_a_function_that_the_module_lacks_is_named() -> None:
    reading = opened(FakePynvml([FIRST], without=["nvmlDeviceGetPowerUsage"])).power_w()
    assert reading.missing is not None
    assert reading.missing.kind == "function-missing"


def test_an_answer_that_cannot_be_read_is_a_reason() -> None:
    class Odd(FakePynvml):
        def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
            return "a lot"  # type: ignore[return-value]

    reading = opened(Odd([FIRST])).power_w()
    assert reading.missing is not None
    assert reading.missing.kind == "failed"


def test_units() -> None:
    device = opened(FakePynvml([FIRST]))
    assert device.power_w().value == 345.678
    assert device.mem_clock_hz().value == 3_201_000_000
    assert device.pci_bus_id().value == "00000000:01:00.0"
    memory = device.memory().value
    assert memory is not None
    assert (memory.used_bytes, memory.total_bytes) == (2 << 30, 80 << 30)


def test_event_reasons_have_names_and_an_old_driver_answers_by_the_old_name() -> None:
    assert decode_event_reasons(0) == ()
    assert decode_event_reasons(0x4 | 0x40) == ("sw_power_cap", "hw_thermal_slowdown")
    assert decode_event_reasons(0x1 | 0x8000) == ("gpu_idle", "unknown_0x8000")

    class Old(FakePynvml):
        def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
            raise AssertionError("unreachable: the driver lacks it")

        def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
            return 0x8

    old = Old([FIRST], codes={"nvmlDeviceGetCurrentClocksEventReasons": 13})
    assert opened(old).throttle_reasons().value == ("hw_slowdown",)


def test_a_desktops_processes_are_seen_too_and_each_process_once() -> None:
    class Desktop(FakePynvml):
        def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[object]:
            return [types.SimpleNamespace(pid=7, usedGpuMemory=1), types.SimpleNamespace(pid=8, usedGpuMemory=None)]

    card = FakeCard("GPU-aaaa", "00000000:01:00.0", processes=((7, 100),))
    assert opened(Desktop([card])).processes().value == (GpuProcess(7, 100), GpuProcess(8, None))
    without = Desktop([card], codes={"nvmlDeviceGetGraphicsRunningProcesses": 3})
    assert opened(without).processes().value == (GpuProcess(7, 100),)
    failing = opened(Desktop([card], codes={"nvmlDeviceGetComputeRunningProcesses": 4})).processes()
    assert failing.missing is not None
    assert failing.missing.kind == "no-permission"


def test_the_drivers_own_samples() -> None:
    class Buffered(FakePynvml):
        def nvmlDeviceGetSamples(self, handle: str, kind: int, since_us: int) -> tuple[int, list[object]]:
            entries = ((0, 0), (since_us + 10, 40), (since_us + 20, 255))
            values = [(t, types.SimpleNamespace(uiVal=v)) for t, v in entries]
            return 1, [types.SimpleNamespace(timeStamp=t, sampleValue=v) for t, v in values]

    found = opened(Buffered([FIRST])).buffered_utilisation(5_000_000)
    # A slot that was never filled has time 0; a value beyond 100 % is the driver's rounding.
    assert found.value == (BufferedSample(5_010_000, 0.4), BufferedSample(5_020_000, 1.0))
    assert opened(Buffered([FIRST], codes={"nvmlDeviceGetSamples": 6})).buffered_utilisation(0).value == ()
    refused = opened(Buffered([FIRST], codes={"nvmlDeviceGetSamples": 3})).buffered_utilisation(0)
    assert refused.missing is not None
    assert refused.missing.kind == "not-supported"
    instance = opened(Buffered([FakeCard("MIG-cccc", "00000000:03:00.0")]), "cccc").buffered_utilisation(0)
    assert instance.value is None


def test_the_real_module_has_every_function_that_is_called() -> None:
    import inspect
    import re

    import pynvml

    from kdaprof.instruments import gpm, nvml

    called = set(re.findall(r'"(nvml[A-Z]\w+)"', inspect.getsource(nvml) + inspect.getsource(gpm)))
    assert len(called) > 25
    assert sorted(name for name in called if not hasattr(pynvml, name)) == []
