"""The instruments on a real card."""

from __future__ import annotations

import gc
import gzip
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kdaprof.instruments.allocator import allocator_of, delta
from kdaprof.instruments.capturefault import CaptureFailure
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.conditions import snapshot
from kdaprof.instruments.cuda_device import CudaDevice
from kdaprof.instruments.gpm import GpmMeter
from kdaprof.instruments.gpu_util import Sampler
from kdaprof.instruments.graphs import Captured, CapturedPair, capture, capture_pair
from kdaprof.instruments.kineto import record
from kdaprof.instruments.nvml import NvmlDevice, open_gpu
from kdaprof.instruments.nvtx import open_ranges
from kdaprof.instruments.overhead import own_overhead
from kdaprof.instruments.timing import time_burst, time_call

pytestmark = pytest.mark.gpu

CLOCK = MonotonicClock()


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(0)


@pytest.fixture
def card(device: CudaDevice) -> Iterator[NvmlDevice]:
    reading = open_gpu(device.traits)
    if reading.value is None:
        pytest.skip(f"no NVML: {reading.reason}")
    yield reading.value
    reading.value.nvml.close()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(256, 256, device="cuda")


def busy(milliseconds: float) -> None:
    torch.cuda._sleep(int(milliseconds * 1_900_000))


# --- device, timing, allocator ---------------------------------------------------------------------------------------


def test_traits(device: CudaDevice) -> None:
    traits = device.traits
    assert traits.uuid
    assert traits.sm_count
    assert traits.l2_bytes
    assert traits.total_memory_bytes
    assert traits.capability is not None


def test_a_launch_returns_before_the_device_is_done(device: CudaDevice) -> None:
    busy(1)
    timing = time_call(lambda: busy(20), device, CLOCK)
    assert timing.host_ns < timing.wall_ns / 10
    assert timing.wall_ns > 5_000_000
    assert timing.gpu_span_ns is None


def test_the_event_span_agrees_with_the_wall_of_a_long_kernel(device: CudaDevice) -> None:
    time_call(lambda: busy(1), device, CLOCK, with_events=True)
    timing = time_call(lambda: busy(20), device, CLOCK, with_events=True)
    assert timing.gpu_span_ns is not None
    assert 0.9 * timing.wall_ns < timing.gpu_span_ns <= timing.wall_ns


def test_a_burst_overlaps_host_and_device(device: CudaDevice, x: torch.Tensor) -> None:
    def step() -> torch.Tensor:
        return x @ x

    step()
    single = min(time_call(step, device, CLOCK).wall_ns for _ in range(20))
    burst = time_burst(step, 200, device, CLOCK)
    assert burst.pipelined_ns < single


def test_the_allocator_counts_what_a_call_asks_for(device: CudaDevice) -> None:
    allocator = allocator_of(device)
    assert allocator.missing is None
    device.synchronize()
    before = allocator.read()
    allocator.reset_peak()
    held = [torch.empty(1024, device="cuda") for _ in range(3)]
    change = delta(before, allocator.read())
    assert before is not None
    assert change is not None
    assert change.allocs == 3
    assert change.alloc_bytes == 3 * 4096
    assert change.peak_bytes == 3 * 4096
    del held


# --- profiled repeats ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["cuda", "full"])
def test_kernels_lie_inside_the_borders_of_their_repeat(
    device: CudaDevice, x: torch.Tensor, tmp_path: Path, mode: Any
) -> None:
    out = tmp_path / "t.json.gz"
    recording = record(lambda: torch.softmax(x * 2, -1), 5, mode=mode, device=device, clock=CLOCK, out_path=out)
    assert recording.missing is None
    assert recording.contents.device_events == 10
    trace = json.loads(gzip.decompress(out.read_bytes()))
    events = trace["traceEvents"]
    ranges = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if str(e.get("name")).startswith("kdaprof.repeat#"))
    kernels = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "kernel"]
    launches = [e["ts"] for e in events if "LaunchKernel" in str(e.get("name"))]
    assert len(ranges) == 5
    # Two clocks meet here, unix time and CUPTI's: 5 µs is what their calibration may be off.
    for begin, end in ranges:
        assert sum(begin - 5 <= s and e <= end + 5 for s, e in kernels) == 2
        assert sum(begin - 5 <= s <= end for s in launches) == 2


# --- graphs ----------------------------------------------------------------------------------------------------------


def with_item(x: torch.Tensor) -> torch.Tensor:
    scale = x.abs().max().item()
    return x / scale


def with_synchronize(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch.cuda.synchronize()
    return y


def with_pageable_copy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(256).to("cuda")


def with_mask(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


def with_host_copy(x: torch.Tensor) -> torch.Tensor:
    return x.sum().cpu()


class ItemInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * grad.sum().item()


def with_item_in_backward(x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    return torch.autograd.grad(ItemInBackward.apply(leaf).sum(), leaf)[0]


UNSAFE = [with_item, with_synchronize, with_pageable_copy, with_mask, with_host_copy, with_item_in_backward]


@pytest.mark.parametrize("fn", UNSAFE)
def test_a_failed_capture_names_the_line_and_the_process_goes_on(
    fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> None:
    state, stream = torch.cuda.get_rng_state(), torch.cuda.current_stream()
    failure = capture(lambda: fn(x))
    assert isinstance(failure, CaptureFailure), fn.__name__
    assert failure.file == __file__
    assert failure.operation
    assert failure.line is not None
    # torch refuses some copies itself, before CUDA is asked: then there is no CUDA code, but the hint still says why.
    assert failure.error_code in (900, 901, None), failure
    assert "waits" in failure.hint or "capture only records" in failure.hint, failure.hint
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert torch.cuda.current_stream() == stream
    assert gc.isenabled()
    # The process is usable: kernels, random numbers, frees, another capture.
    assert torch.isfinite(torch.randn(1000, device="cuda").sum()).item()
    again = capture(lambda: x * torch.rand_like(x))
    assert isinstance(again, Captured)
    again.replay()
    torch.cuda.synchronize()
    again.reset()


def test_the_line_of_item_is_the_line_of_item(x: torch.Tensor) -> None:
    failure = capture(lambda: with_item(x))
    assert isinstance(failure, CaptureFailure)
    assert failure.function == "with_item"
    assert "_local_scalar_dense" in (failure.operation or "")
    assert "x.abs().max().item()" in (failure.operation or "")


def test_failed_captures_leave_no_memory_behind(x: torch.Tensor) -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved(), torch.cuda.memory_allocated()

    capture(lambda: with_item(x))
    reserved, allocated = held()
    for _ in range(5):
        assert isinstance(capture(lambda: with_item(x)), CaptureFailure)
    # The broken graph is kept, with the one block of 2 MiB that its pool began with; nothing of the call's own size.
    now_reserved, now_allocated = held()
    assert now_reserved - reserved <= 5 * (2 << 20)
    assert now_allocated - allocated <= 5 * 4096


def test_replays_follow_their_inputs_and_overwrite_their_outputs(x: torch.Tensor) -> None:
    captured = capture(lambda: torch.softmax(x @ x, -1))
    assert isinstance(captured, Captured)
    assert captured.pool_bytes >= captured.pool_allocated_bytes > 0
    for _ in range(3):
        x.normal_()
        captured.replay()
        assert torch.equal(captured.outputs, torch.softmax(x @ x, -1))
    stale = captured.outputs.clone()
    x.normal_()
    captured.replay()
    assert not torch.equal(captured.outputs, stale)
    captured.reset()


BEHIND_ITS_BACK = """
import torch
from kdaprof.instruments.graphs import capture
a, b = torch.randn(64, 65536, device="cuda"), torch.randn(65536, 64, device="cuda")  # summed in parts, in a workspace
captured = capture(lambda: a @ b)
torch._C._cuda_clearCublasWorkspaces()  # as torch.compile does around a capture of its own
torch.cuda.empty_cache()
captured.replay()
torch.cuda.synchronize()
torch.testing.assert_close(captured.outputs, a @ b)
"""


def test_a_graph_outlives_the_workspaces_of_eager_code() -> None:
    done = subprocess.run([sys.executable, "-c", BEHIND_ITS_BACK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_forward_and_backward_apart_give_eagers_gradients(x: torch.Tensor) -> None:
    leaf = x.clone().requires_grad_()

    def forward() -> torch.Tensor:
        return torch.softmax(leaf @ leaf, -1)

    pair = capture_pair(forward, lambda out: torch.autograd.grad(out.square().sum(), leaf))
    assert isinstance(pair, CapturedPair)
    for _ in range(2):
        with torch.no_grad():
            leaf.normal_()
        pair.forward.replay()
        pair.backward.replay()
        apart = leaf.detach().clone().requires_grad_()  # a graph of its own: the captured one lives on its stream
        expected = torch.autograd.grad(torch.softmax(apart @ apart, -1).square().sum(), apart)[0]
        torch.testing.assert_close(pair.backward.outputs[0], expected)
    pair.reset()


def test_random_state_is_put_back_after_a_capture(x: torch.Tensor) -> None:
    torch.cuda.manual_seed(3)
    expected = torch.rand(4, device="cuda")
    torch.cuda.manual_seed(3)
    captured = capture(lambda: torch.rand_like(x))
    assert isinstance(captured, Captured)
    assert torch.equal(torch.rand(4, device="cuda"), expected)
    captured.replay()
    first = captured.outputs.clone()
    captured.replay()
    assert not torch.equal(captured.outputs, first)
    captured.reset()


# --- NVML ------------------------------------------------------------------------------------------------------------


def test_nvmls_card_is_torchs_card(card: NvmlDevice, device: CudaDevice) -> None:
    assert device.traits.uuid is not None
    assert device.traits.uuid in (card.uuid or "")
    memory = card.memory().value
    assert memory is not None
    assert device.traits.total_memory_bytes is not None
    assert abs(memory.total_bytes - device.traits.total_memory_bytes) < 0.1 * memory.total_bytes
    for reading in (card.sm_clock_hz(), card.power_w(), card.temperature_c(), card.throttle_reasons()):
        assert reading.value is not None or reading.reason


def test_a_card_chosen_by_uuid_is_the_same_card(device: CudaDevice) -> None:
    script = textwrap.dedent(
        """
        from kdaprof.instruments.cuda_device import CudaDevice
        from kdaprof.instruments.nvml import open_gpu
        reading = open_gpu(CudaDevice(0).traits)
        print(reading.value.uuid if reading.value else reading.reason)
        """
    )
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": f"GPU-{device.traits.uuid}"}
    done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)
    assert str(device.traits.uuid) in done.stdout


def test_the_sampler_sees_a_busy_card(card: NvmlDevice, x: torch.Tensor) -> None:
    gpm = GpmMeter(card)
    has_gpm = gpm.missing is None
    big = torch.randn(4096, 4096, device="cuda")
    with Sampler(card, CLOCK, 20, gpm=gpm if has_gpm else None) as sampler:
        end = CLOCK.now_ns() + 2_500_000_000
        while CLOCK.now_ns() < end:
            for _ in range(20):
                big @ big
            torch.cuda.synchronize()
    gpm.close()
    series = sampler.series
    assert series.stopped is None
    assert series.taken >= 0.8 * series.due
    utilisations = series.values("util")
    if not utilisations:
        pytest.skip("this card gives no utilisation")
    assert max(utilisations) > 0.8
    assert series.own_cpu_ns < 0.2 * (series.end_ns - series.start_ns)
    if has_gpm:
        assert max(series.values("gpm_graphics")) > 0.5


def test_conditions_of_a_real_card(card: NvmlDevice) -> None:
    from kdaprof.instruments.reading import Reading

    seen = snapshot(Reading(card), CLOCK, busy_window_ns=500_000_000)
    assert seen.gpu is not None
    for field in seen.gpu.__dataclass_fields__:
        assert getattr(seen.gpu, field) is not None or seen.reason(f"gpu.{field}"), field


def test_own_overhead_is_small(card: NvmlDevice, device: CudaDevice) -> None:
    from kdaprof.instruments.reading import Reading

    items = own_overhead(
        clock=CLOCK,
        device=device,
        allocator=allocator_of(device),
        ranges=open_ranges(),
        sensor=Reading(card),
    )
    costs = {item.name: item.ns_per_call for item in items}
    for name in ("clock_read", "event_record", "allocator_read"):
        assert costs[name] is not None
        assert costs[name] < 200_000
