"""One synthetic trace for each idle class, with an exact answer: a classifier of one word fails here."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper_trace import PaperTrace

from kdaprof.analysis.trace.busy import device_work
from kdaprof.analysis.trace.host_state import HostState
from kdaprof.analysis.trace.idle import CLASSES, Cause, Gaps, gaps_of
from kdaprof.analysis.trace.latency import LATENCY_MIN_SAMPLES, launch_latency
from kdaprof.analysis.trace.links import link
from kdaprof.timeline.columns import Timeline

FIRST = ((1_000, 2_000), (3_000, 10_000))
"""A first kernel: launched from 1,000 to 2,000, running from 3,000 to 10,000 ns; the gap opens at 10,000."""


def gaps(timeline: Timeline) -> Gaps:
    links = link(timeline)
    work = device_work(timeline, 0)
    return gaps_of(timeline, links, HostState(timeline, links), work, launch_latency(timeline, links, work))


def classes(timeline: Timeline) -> dict[str, int]:
    split = gaps(timeline).split()
    assert split.total_ns == device_work(timeline, 0).coverage.gap_total_ns
    return {name: value for name, value in split.by_class().items() if value}


def begin() -> PaperTrace:
    trace = PaperTrace()
    trace.launch(*FIRST)
    return trace


def test_dispatch_is_time_inside_an_operator_before_its_launch_call(tmp_path: Path) -> None:
    trace = begin()
    trace.op("aten::add", 12_000, 20_000)
    trace.call("cudaEventQuery", 10_500, 11_000)
    trace.launch((18_000, 19_000), (19_000, 21_000))
    assert classes(trace.timeline(tmp_path)) == {"dispatch": 6_500, "host_other": 1_500, "launch_call": 1_000}


def test_host_other_is_time_without_any_traced_operator_even_inside_an_annotation(tmp_path: Path) -> None:
    trace = begin()
    trace.annotation("fwd", 0, 40_000)
    trace.python("train.py(3): load", 0, 40_000)
    trace.launch((30_000, 30_001), (30_001, 31_000))
    assert classes(trace.timeline(tmp_path)) == {"host_other": 20_000, "launch_call": 1}


@pytest.mark.parametrize(
    "api", ["cudaStreamSynchronize", "cudaDeviceSynchronize", "hipStreamSynchronize", "cudaMemcpy"]
)
def test_sync_is_time_inside_a_synchronising_call_also_within_an_operator(tmp_path: Path, api: str) -> None:
    trace = begin()
    trace.op("aten::item", 8_000, 16_000)
    trace.call(api, 9_000, 15_000)
    trace.launch((17_000, 18_000), (18_000, 19_000))
    timeline = trace.timeline(tmp_path)
    assert classes(timeline) == {"sync": 5_000, "dispatch": 1_000, "host_other": 1_000, "launch_call": 1_000}
    assert gaps(timeline).cause.tolist() == [Cause.DRAINED_BY_SYNC]


@pytest.mark.parametrize("api", ["cudaMalloc", "cudaFree", "cudaHostAlloc", "hipMalloc", "hipFree", "cuMemCreate"])
def test_allocator_is_time_inside_an_allocation_of_the_driver(tmp_path: Path, api: str) -> None:
    trace = begin()
    trace.op("aten::empty", 10_000, 50_000)
    trace.call(api, 11_000, 49_000)
    trace.launch((50_000, 51_000), (51_000, 52_000))
    assert classes(trace.timeline(tmp_path)) == {"allocator": 38_000, "dispatch": 2_000, "launch_call": 1_000}


def test_jit_is_module_load_compile_and_what_the_probe_marks(tmp_path: Path) -> None:
    trace = begin()
    trace.call("cuModuleLoadData", 10_000, 12_000, driver=True)
    trace.python("/x/triton/compiler/compiler.py(226): compile", 13_000, 20_000)
    trace.annotation("kdaprof.jit:my_kernel", 22_000, 25_000)
    trace.launch((26_000, 27_000), (27_000, 28_000))
    assert classes(trace.timeline(tmp_path)) == {"jit": 12_000, "host_other": 4_000, "launch_call": 1_000}


def test_launch_call_is_the_part_of_the_gap_inside_the_call(tmp_path: Path) -> None:
    trace = begin()
    trace.launch((9_000, 15_000), (16_000, 17_000))
    trace.launch((16_500, 19_000), (18_000, 20_000))  # begins before the call returns
    assert classes(trace.timeline(tmp_path)) == {"launch_call": 6_000, "device_wait": 1_000}


def arrivals(trace: PaperTrace, start: int, delay: int, count: int) -> int:
    """`count` launches into an empty device that arrive `delay` after the return of the call; the end of the last."""
    for _ in range(count):
        trace.launch((start + 1_000, start + 2_000), (start + 2_000 + delay, start + 3_000 + delay))
        start += 3_000 + delay
    return start


def test_latency_is_bounded_by_what_an_empty_device_needs_and_the_rest_is_waiting(tmp_path: Path) -> None:
    trace = PaperTrace()
    end = arrivals(trace, 0, 2_000, LATENCY_MIN_SAMPLES + 2)
    idle_before = (LATENCY_MIN_SAMPLES + 1) * 4_000
    trace.launch((end, end + 1_000), (end + 21_000, end + 22_000))  # 20 µs after the return: 4 arrive, 16 wait
    timeline = trace.timeline(tmp_path)
    got = classes(timeline)
    assert got["device_wait"] == 16_000
    assert got["launch_latency"] == (LATENCY_MIN_SAMPLES + 1) * 2_000 + 4_000
    assert sum(got.values()) == idle_before + 21_000


def test_device_wait_is_a_launch_long_before_the_gap(tmp_path: Path) -> None:
    trace = begin()
    trace.launch((2_000, 2_500), (18_000, 20_000), stream=20)
    timeline = trace.timeline(tmp_path)
    assert classes(timeline) == {"device_wait": 8_000}
    assert gaps(timeline).cause.tolist() == [Cause.QUEUED]


def test_graph_gap_is_idle_between_the_events_of_one_graph_launch(tmp_path: Path) -> None:
    trace = PaperTrace()
    graph = trace.call("cudaGraphLaunch", 0, 1_000)
    for start in (2_000, 4_500, 7_000):
        trace.kernel(start, start + 2_000, graph)
    again = trace.call("cudaGraphLaunch", 8_000, 8_500)
    trace.kernel(10_000, 12_000, again)
    timeline = trace.timeline(tmp_path)
    assert classes(timeline) == {"graph_gap": 1_000, "device_wait": 1_000}, "a new launch is no graph gap"


def test_events_of_one_correlation_that_is_no_graph_are_not_graph_gaps(tmp_path: Path) -> None:
    trace = PaperTrace()
    call = trace.call("cudaMemcpyAsync", 0, 1_000)
    trace.kernel(2_000, 3_000, call, cat="gpu_memcpy")
    trace.kernel(3_500, 4_000, call, cat="gpu_memcpy")
    assert classes(trace.timeline(tmp_path)) == {"device_wait": 500}


def test_no_launch_record_and_clocks_that_disagree(tmp_path: Path) -> None:
    trace = begin()
    trace.kernel(12_000, 13_000, None)
    trace.kernel(15_000, 16_000, 999)
    trace.launch((18_000, 19_000), (17_000, 20_000))
    timeline = trace.timeline(tmp_path)
    assert classes(timeline) == {"no_launch_record": 4_000, "unclassified": 1_000}
    assert gaps(timeline).cause.tolist() == [Cause.UNKNOWN] * 3


def test_a_copy_to_pageable_memory_is_a_synchronise_and_one_to_pinned_memory_is_none(tmp_path: Path) -> None:
    for kind, drained in (("Device -> Pageable", True), ("Device -> Pinned", False)):
        trace = begin()
        trace.launch(
            (3_000, 10_900), (10_000, 10_800), api="cudaMemcpyAsync", cat="gpu_memcpy", name=f"Memcpy DtoH ({kind})"
        )
        trace.launch((12_000, 13_000), (14_000, 15_000))
        timeline = trace.timeline(tmp_path)
        found = gaps(timeline)
        assert bool(found.cause[-1] == Cause.DRAINED_BY_SYNC) is drained
        assert (found.split().sync == 100) is drained


def test_only_the_thread_that_launches_is_asked(tmp_path: Path) -> None:
    trace = begin()
    trace.op("aten::mul", 10_000, 30_000, tid=200)
    trace.call("cudaStreamSynchronize", 10_000, 30_000, tid=200)
    trace.launch((30_000, 31_000), (31_000, 32_000))
    timeline = trace.timeline(tmp_path)
    assert classes(timeline) == {"host_other": 20_000, "launch_call": 1_000}
    assert gaps(timeline).cause.tolist() == [Cause.STARVED]


def test_gaps_are_those_of_the_device_not_of_its_streams(tmp_path: Path) -> None:
    trace = begin()
    trace.launch((2_000, 2_100), (4_000, 30_000), stream=20)
    trace.launch((25_000, 26_000), (28_000, 40_000))
    assert classes(trace.timeline(tmp_path)) == {}, "stream 7 idles from 10,000 to 28,000 while stream 20 works"


def test_every_class_has_a_scene_here() -> None:
    text = Path(__file__).read_text()
    assert all(f'"{name}"' in text for name in CLASSES)
