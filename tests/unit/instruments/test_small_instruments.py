"""Devices, allocator, GPM and overhead."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from kdaprof.errors import UnavailableError, UsageError
from kdaprof.instruments.allocator import AllocatorCounters, NoAllocator, allocator_of, delta
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.cuda_device import open_device, traits_of
from kdaprof.instruments.device import CpuDevice
from kdaprof.instruments.fakes import (
    FakeCard,
    FakeClock,
    FakeDevice,
    FakeNvmlError,
    FakePynvml,
    FakeRanges,
    FakeSensor,
    no_sensor,
)
from kdaprof.instruments.gpm import GpmActivity, GpmMeter
from kdaprof.instruments.nvml import NvmlDevice, open_nvml
from kdaprof.instruments.overhead import measure, own_overhead
from kdaprof.instruments.reading import Reading


def test_the_cpu_is_a_device_without_events() -> None:
    device = open_device("cpu")
    assert (device.kind, device.index) == ("cpu", None)
    assert device.traits.name
    timer = device.event_timer()
    timer.start()
    timer.stop()
    assert timer.elapsed_ns() is None


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:-1", "cpu:0", "", "mps"])
def test_unknown_devices_are_usage_errors(name: str) -> None:
    with pytest.raises(UsageError, match="unknown device"):
        open_device(name)


def test_a_cuda_device_that_is_not_there() -> None:
    import torch

    if torch.cuda.is_available():
        with pytest.raises(UsageError, match="does not exist"):
            open_device("cuda:99")
    else:
        with pytest.raises(UnavailableError, match="no CUDA device"):
            open_device("cuda")


def test_traits_from_torchs_properties_and_from_an_older_torch() -> None:
    new = SimpleNamespace(
        name="H", uuid="ab-cd", pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0, major=9, minor=0,
        multi_processor_count=132, L2_cache_size=50, total_memory=80,
    )  # fmt: skip
    traits = traits_of(new)
    assert (traits.uuid, traits.pci_bus_id, traits.l2_bytes) == ("ab-cd", "00000000:3B:00.0", 50)
    old = SimpleNamespace(name="V", major=7, minor=0, multi_processor_count=80, total_memory=16)
    assert (traits_of(old).uuid, traits_of(old).pci_bus_id, traits_of(old).l2_bytes) == (None, None, None)


def test_allocator_of_the_cpu_gives_a_reason() -> None:
    allocator = allocator_of(CpuDevice())
    assert allocator.read() is None
    assert "CPU" in (allocator.missing or "")
    allocator.reset_peak()


def test_delta_of_counters() -> None:
    before = AllocatorCounters(10, 1000, 500, 400, 2 << 20)
    after = AllocatorCounters(17, 1800, 900, 400, 4 << 20)
    change = delta(before, after)
    assert change is not None
    assert (change.allocs, change.alloc_bytes, change.peak_bytes) == (7, 800, 500)
    assert change.reserved_growth_bytes == 2 << 20
    assert delta(None, after) is None
    assert delta(before, None) is None


class GpmModule(FakePynvml):
    """GPM over percentages that a test gives; a sample is the number of its taking."""

    def __init__(self, percent: dict[int, float], *, supported: int = 1) -> None:
        super().__init__([FakeCard("GPU-a", "00000000:01:00.0")])
        self.percent = percent
        self.supported = supported
        self.freed = 0

    @staticmethod
    def c_nvmlGpmMetricsGet_t() -> Any:
        metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(16)]
        return SimpleNamespace(version=0, numMetrics=0, sample1=None, sample2=None, metrics=metrics)

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> Any:
        return SimpleNamespace(isSupportedDevice=self.supported)

    def nvmlGpmSampleAlloc(self) -> dict[str, int]:
        return {"n": 0}

    def nvmlGpmSampleFree(self, sample: object) -> None:
        self.freed += 1

    def nvmlGpmSampleGet(self, handle: str, sample: dict[str, int]) -> dict[str, int]:
        self.taken = getattr(self, "taken", 0) + 1
        sample["n"] = self.taken
        return sample

    def nvmlGpmMetricsGet(self, request: Any) -> Any:
        if request.version != 1 or request.sample2["n"] != request.sample1["n"] + 1:
            raise FakeNvmlError(2, "samples out of order")
        for metric in request.metrics[: request.numMetrics]:
            metric.nvmlReturn = 0 if metric.metricId in self.percent else 3
            metric.value = self.percent.get(metric.metricId, 0.0)
        return request


def meter(module: GpmModule) -> GpmMeter:
    nvml = open_nvml(lambda: module).value
    assert nvml is not None
    device = nvml.device("GPU-a").value
    assert isinstance(device, NvmlDevice)
    return GpmMeter(device)


def test_gpm_gives_fractions_over_consecutive_samples() -> None:
    module = GpmModule({1: 15.1, 2: 8.7, 3: 3.9, 10: 3.5})
    gpm = meter(module)
    assert gpm.missing is None
    for _ in range(3):
        activity = gpm.read().value
        assert activity is not None
        assert (activity.graphics, activity.dram) == (pytest.approx(0.151), pytest.approx(0.035))
    gpm.close()
    gpm.close()
    assert module.freed == 2
    assert gpm.read().value is None


def test_gpm_leaves_out_what_the_card_does_not_give() -> None:
    assert meter(GpmModule({1: 50.0, 2: math.nan})).read().value == GpmActivity(0.5, None, None, None)
    nothing = meter(GpmModule({})).read()
    assert nothing.value is None
    assert nothing.missing is not None
    assert nothing.missing.kind == "no-data"


def test_a_gpm_sample_that_fails_starts_the_series_again() -> None:
    class Failing(GpmModule):
        fails = False

        def nvmlGpmSampleGet(self, handle: str, sample: dict[str, int]) -> dict[str, int]:
            if self.fails:
                raise FakeNvmlError(999, "unknown error")
            return super().nvmlGpmSampleGet(handle, sample)

    module = Failing({1: 50.0})
    gpm = meter(module)
    given = []
    for fails in (False, True, True, False, False):
        module.fails = fails
        given.append(gpm.read())
    # The fourth would cover the time of two failed readings as well, though it is said to cover that since the last.
    assert [reading.value is not None for reading in given] == [True, False, False, False, True]
    assert "starts again" in (given[3].reason or "")


def test_gpm_gives_tensor_activity_and_traffic_in_bytes_a_second() -> None:
    activity = meter(GpmModule({1: 50.0, 5: 40.0, 20: 3.0, 21: 0.5, 60: 2.0, 61: 1.0})).read().value
    assert activity is not None
    assert activity.tensor == 0.4
    assert (activity.pcie_tx_bytes_per_s, activity.pcie_rx_bytes_per_s) == (3 << 20, 1 << 19)
    assert (activity.nvlink_rx_bytes_per_s, activity.nvlink_tx_bytes_per_s) == (2 << 20, 1 << 20)


def test_gpm_that_is_not_supported_says_so() -> None:
    gpm = meter(GpmModule({}, supported=0))
    assert "Hopper" in (gpm.missing or "")
    assert gpm.read().value is None


def test_overhead_is_the_quietest_batch() -> None:
    clock = FakeClock()
    batches = iter([9_000, 900, 900, 100, 100, 500, 500, 100, 300, 700, 700])
    item = measure("x", lambda: clock.advance(next(batches, 100)), clock, 2)
    # One use first, unmeasured; then batches of two.
    assert item.ns_per_call == 100
    assert item.n == 2


def test_overhead_of_a_cpu_machine_is_measured_or_explained() -> None:
    device = CpuDevice()
    items = own_overhead(
        clock=MonotonicClock(),
        device=device,
        allocator=allocator_of(device),
        ranges=FakeRanges(),  # type: ignore[arg-type]
        sensor=no_sensor("no NVML"),
        n=20,
    )
    by_name = {item.name: item for item in items}
    assert by_name["clock_read"].ns_per_call is not None
    assert 0 < by_name["clock_read"].ns_per_call < 50_000
    assert by_name["event_record"].missing
    assert by_name["nvml_power"].missing == "no NVML"
    assert all((item.ns_per_call is None) == bool(item.missing) for item in items)


def test_overhead_of_a_card_is_measured() -> None:
    clock = FakeClock(tick_ns=100)
    device = FakeDevice(clock)
    items = own_overhead(
        clock=clock,
        device=device,
        allocator=NoAllocator("fake"),
        ranges=FakeRanges(),  # type: ignore[arg-type]
        sensor=Reading(FakeSensor()),
        n=10,
    )
    measured = {item.name for item in items if item.ns_per_call is not None}
    assert {"event_record", "nvml_utilisation", "nvml_sm_clock", "nvml_power"} <= measured
