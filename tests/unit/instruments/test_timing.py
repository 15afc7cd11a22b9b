from __future__ import annotations

import gc

import pytest

from kdaprof.errors import UsageError
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.device import CpuDevice
from kdaprof.instruments.fakes import FakeClock, FakeDevice
from kdaprof.instruments.timing import garbage_collection_off, time_burst, time_call


def test_host_ends_when_the_call_returns_and_wall_when_the_device_is_done() -> None:
    clock = FakeClock()
    device = FakeDevice(clock)
    timing = time_call(lambda: device.launch(host_ns=300, device_ns=2_000), device, clock)
    assert (timing.host_ns, timing.wall_ns, timing.gpu_span_ns) == (300, 2_300, None)
    assert timing.t_ns == 1_000_000


def test_work_queued_before_is_not_counted() -> None:
    clock = FakeClock()
    device = FakeDevice(clock)
    device.launch(host_ns=10, device_ns=1_000_000)
    assert time_call(lambda: device.launch(50, 100), device, clock).wall_ns == 150


def test_events_give_the_span_with_its_idle_in_it() -> None:
    clock = FakeClock()
    device = FakeDevice(clock)

    def two_kernels_and_a_gap() -> None:
        device.launch(100, 50)
        device.launch(900, 50)

    timing = time_call(two_kernels_and_a_gap, device, clock, with_events=True)
    assert timing.gpu_span_ns == 1_050
    assert time_call(lambda: None, FakeDevice(clock, kind="cpu"), clock, with_events=True).gpu_span_ns is None


def test_a_burst_lets_the_host_run_ahead() -> None:
    clock = FakeClock()
    device = FakeDevice(clock)
    burst = time_burst(lambda: device.launch(100, 400), 10, device, clock)
    assert burst.host_ns == 1_000
    assert burst.wall_ns == 100 + 10 * 400
    assert burst.pipelined_ns == 410


def test_a_burst_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one call"):
        time_burst(lambda: None, 0, FakeDevice(), FakeClock())


@pytest.mark.parametrize("was_on", [True, False])
def test_garbage_collection_is_off_inside_and_put_back(was_on: bool) -> None:
    try:
        (gc.enable if was_on else gc.disable)()
        seen: list[bool] = []
        time_call(lambda: seen.append(gc.isenabled()), FakeDevice(), FakeClock())
        time_burst(lambda: seen.append(gc.isenabled()), 2, FakeDevice(), FakeClock())
        with garbage_collection_off(), garbage_collection_off():
            seen.append(gc.isenabled())
        assert seen == [False] * 4
        assert gc.isenabled() is was_on
        with pytest.raises(ZeroDivisionError):
            time_call(lambda: 1 / 0, FakeDevice(), FakeClock())
        assert gc.isenabled() is was_on
    finally:
        gc.enable()


def test_what_the_call_returns_is_freed_after_the_last_reading() -> None:
    clock = FakeClock()

    class Costly:
        def __del__(self) -> None:
            clock.advance(10_000)

    assert time_call(Costly, FakeDevice(clock), clock).wall_ns == 0


def test_real_clock_sees_a_real_sleep() -> None:
    clock = MonotonicClock()
    timing = time_call(lambda: clock.sleep_ns(3_000_000), CpuDevice(), clock)
    assert 3_000_000 <= timing.host_ns <= timing.wall_ns < 1_000_000_000
