"""Profiled repeats: wall = busy + head + gaps + drain, to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper_trace import PaperTrace

from kdaprof.analysis.trace.repeats import RepeatSplit, repeat_splits, repeat_windows
from kdaprof.errors import UsageError


def repeats(*, annotated: bool) -> PaperTrace:
    made = PaperTrace()
    made.call("cudaDeviceSynchronize", 0, 1_000)
    for index in range(2):
        at = 1_000 + index * 50_000
        if annotated:
            made.annotation(f"kdaprof.repeat#{index}", at, at + 50_000)
        made.op("aten::add", at + 2_000, at + 9_000)
        made.launch((at + 5_000, at + 8_000), (at + 9_000, at + 14_000))
        made.launch((at + 15_000, at + 17_000), (at + 18_000, at + 30_000))
        made.call("cudaDeviceSynchronize", at + 20_000, at + 50_000)
    return made


@pytest.mark.parametrize("annotated", [True, False])
def test_the_parts_of_a_repeat_add_up_to_its_wall(tmp_path: Path, annotated: bool) -> None:
    timeline = repeats(annotated=annotated).timeline(tmp_path)
    splits = repeat_splits(timeline)
    assert [split.index for split in splits] == [0, 1]
    for split in splits:
        assert split.wall_ns == 50_000
        assert split.launches == {"cudaLaunchKernel": 2}
        device = split.device
        assert device is not None
        assert device.busy.busy_ns == 17_000
        assert device.head_ns == 9_000
        # A cut of 1,000 follows each call's return; with two launches there is no latency to compare with.
        assert device.head.by_class() | {"launch_call": 3_000, "dispatch": 3_000} == device.head.by_class()
        assert (device.head.host_other, device.head.launch_latency) == (2_000, 1_000)
        assert (device.gaps.host_other, device.gaps.launch_call, device.gaps.launch_latency) == (1_000, 2_000, 1_000)
        assert device.drain_ns == 20_000
        assert split.idle_ns == device.head_ns + device.gaps.total_ns + device.drain_ns
        assert split.wall_ns == device.busy.busy_ns + split.idle_ns


def test_host_borders_may_be_handed_in(tmp_path: Path) -> None:
    timeline = repeats(annotated=False).timeline(tmp_path)
    (split,) = repeat_splits(timeline, [(3_000, 41_000)])
    assert (split.wall_ns, split.launch_total) == (38_000, 2)
    assert split.device is not None
    assert (split.device.head_ns, split.device.drain_ns) == (7_000, 10_000)


def test_an_event_beyond_the_border_is_clipped(tmp_path: Path) -> None:
    timeline = repeats(annotated=False).timeline(tmp_path)
    (split,) = repeat_splits(timeline, [(1_000, 25_000)])
    assert split.device is not None
    assert split.device.busy.busy_ns == 5_000 + 6_000
    assert split.device.drain_ns == 0
    assert split.wall_ns == split.device.busy.busy_ns + split.device.head_ns + split.device.gaps.total_ns


def test_a_repeat_without_device_events_has_no_busy_time(tmp_path: Path) -> None:
    made = PaperTrace()
    made.annotation("kdaprof.repeat#0", 0, 10_000)
    made.op("aten::add", 0, 9_000)
    (split,) = repeat_splits(made.timeline(tmp_path))
    assert split.device is None
    assert split.idle_ns is None


def test_the_marks_of_the_probe_are_no_phases_and_syncs_without_launches_no_repeats(tmp_path: Path) -> None:
    made = repeats(annotated=False)
    made.call("cudaDeviceSynchronize", 102_000, 103_000)
    assert [window for _, window in repeat_windows(made.timeline(tmp_path))] == [(1_000, 51_000), (51_000, 101_000)]


def test_several_devices_ask_for_a_name(tmp_path: Path) -> None:
    made = repeats(annotated=True)
    made.launch((2_000, 3_000), (4_000, 5_000), device=1)
    timeline = made.timeline(tmp_path)
    with pytest.raises(UsageError, match="devices 0, 1"):
        repeat_splits(timeline)
    splits: tuple[RepeatSplit, ...] = repeat_splits(timeline, device=0)
    assert splits[0].device is not None
    assert splits[0].device.busy.busy_ns == 17_000
