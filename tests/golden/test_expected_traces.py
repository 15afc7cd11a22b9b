"""The traces of other people and of an H200, against values computed by an independent script."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kdaprof.analysis.trace.busy import device_busy, device_rows, device_work
from kdaprof.analysis.trace.host_state import HostState
from kdaprof.analysis.trace.idle import Cause, Gaps, IdleSplit, gaps_of
from kdaprof.analysis.trace.latency import launch_latency
from kdaprof.analysis.trace.launches import launch_count
from kdaprof.analysis.trace.links import Links, link
from kdaprof.timeline import kineto
from kdaprof.timeline.columns import Kind, Timeline

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
if not (TRACES / "EXPECTED.json").is_file():
    pytest.skip(f"the shared traces are not at {TRACES}", allow_module_level=True)

EXPECTED = json.loads((TRACES / "EXPECTED.json").read_text())["traces"]
WITH_DEVICE = [name for name, value in EXPECTED.items() if "device" in value]
WHOLE_MICROSECONDS = {
    "v100-resnet50-workers0.json.gz",
    "a-sync-each-add.json.gz",
    "b-many-small-launches.json.gz",
    "a100-graphs-orphans.json.gz",
}
REGIONS = list(EXPECTED["h200-known-causes.json.gz"]["regions_us"])


@cache
def loaded(name: str) -> tuple[Timeline, Links, HostState]:
    timeline = kineto.read(TRACES / name)
    links = link(timeline)
    return timeline, links, HostState(timeline, links)


def tolerance_us(name: str, events: int) -> float:
    """The expected values were summed in double microseconds, which at these times are 1 ns apart: half of one for
    each border of an event. Traces in whole microseconds leave nothing to round.
    """
    return 0.0 if name in WHOLE_MICROSECONDS else 0.0005 * 2 * events + 0.005


def whole_gaps(name: str) -> Gaps:
    timeline, links, host = loaded(name)
    work = device_work(timeline, timeline.devices()[0])
    return gaps_of(timeline, links, host, work, launch_latency(timeline, links, work))


def by_position(split: IdleSplit) -> dict[str, float]:
    before = split.sync + split.allocator + split.jit + split.dispatch + split.host_other
    after = split.launch_latency + split.device_wait + split.graph_gap
    found = {"before": before, "inside": split.launch_call, "after": after, "none": split.no_launch_record}
    return {key: value / 1000 for key, value in found.items()}


@pytest.mark.parametrize("name", WITH_DEVICE)
def test_busy_idle_and_span(name: str) -> None:
    timeline, links, _ = loaded(name)
    want = EXPECTED[name]["device"]
    span = device_busy(timeline)
    assert span is not None
    near = tolerance_us(name, want["gpu_events"])
    assert span.events == want["gpu_events"]
    assert span.span_ns / 1000 == pytest.approx(want["span_us"], abs=0.001)
    assert span.busy_ns / 1000 == pytest.approx(want["busy_us"], abs=near)
    assert span.idle_ns / 1000 == pytest.approx(want["idle_us"], abs=near)
    assert sum(launch_count(timeline, links=links).values()) == want["distinct_launch_records"]


@pytest.mark.parametrize("name", WITH_DEVICE)
def test_idle_by_position_of_the_launch_call(name: str) -> None:
    want = EXPECTED[name]["device"]
    gaps = whole_gaps(name)
    got = by_position(gaps.split())
    split = want["idle_split_us"]
    near = tolerance_us(name, want["gpu_events"])
    assert got["before"] == pytest.approx(split.get("before_launch_call", 0), abs=near)
    assert got["inside"] == pytest.approx(split.get("inside_launch_call", 0), abs=near)
    late = split.get("after_launch_call", 0) + split.get("launched_before_gap", 0)
    assert got["after"] == pytest.approx(late, abs=near)
    assert got["none"] == pytest.approx(split.get("no_launch_record", 0), abs=near)
    span = device_busy(loaded(name)[0])
    assert span is not None
    assert gaps.split().total_ns == span.idle_ns, "the classes add up to the idle exactly"


@pytest.mark.parametrize("name", [name for name in WITH_DEVICE if "drained_by_sync_us" in EXPECTED[name]["device"]])
def test_idle_drained_by_a_synchronise(name: str) -> None:
    got = whole_gaps(name).caused_ns(Cause.DRAINED_BY_SYNC) / 1000
    assert got == pytest.approx(EXPECTED[name]["device"]["drained_by_sync_us"], abs=0.06)


def test_a_fraction_of_a_microsecond_is_kept() -> None:
    """Durations in whole microseconds would lose a tenth of the busy time of this trace."""
    timeline, _, _ = loaded("h100-bert-small.json.gz")
    rows = np.flatnonzero(timeline.device_mask)
    floored = int(((timeline.end_ns[rows] - timeline.start_ns[rows]) // 1000 * 1000).sum())
    span = device_busy(timeline)
    assert span is not None
    assert span.busy_ns == 309_437
    assert floored < 0.92 * span.busy_ns


@pytest.mark.parametrize("region", REGIONS)
def test_each_region_has_its_one_cause(region: str) -> None:
    timeline, links, host = loaded("h200-known-causes.json.gz")
    want = EXPECTED["h200-known-causes.json.gz"]["regions_us"][region]
    (row,) = [
        row
        for row in np.flatnonzero(timeline.of_kind(Kind.ANNOTATION)).tolist()
        if timeline.name_of(row) == f"region:{region}"
    ]
    window = (int(timeline.start_ns[row]), int(timeline.end_ns[row]))
    rows = device_rows(timeline, 0, window=window, links=links)
    work = device_work(timeline, 0, rows)
    latency = launch_latency(timeline, links, device_work(timeline, 0))
    split = gaps_of(timeline, links, host, work, latency).split()
    assert rows.size == want["device_events"]
    assert sum(launch_count(timeline, window, links=links).values()) == want["launch_calls"]
    assert work.coverage.total_ns / 1000 == pytest.approx(want["busy"], abs=1.0)
    assert split.total_ns / 1000 == pytest.approx(want["idle"], abs=1.0)
    got = by_position(split)
    for place in ("before", "inside", "after"):
        if place in want:
            assert got[place] == pytest.approx(want[place], abs=1.0)
    if "largest_class" in want:
        assert split.largest() == want["largest_class"]


def test_a_trace_without_a_device_has_no_busy_time() -> None:
    timeline, _, _ = loaded("cpu-only.json.gz")
    assert timeline.devices() == ()
    assert device_busy(timeline) is None
