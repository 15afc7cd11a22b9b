"""The verdict at its thresholds: each rule, and a near miss of each."""

from __future__ import annotations

import pytest

from kdaprof.analysis.trace.bound import THRESHOLDS, decide
from kdaprof.analysis.trace.idle import IdleSplit


def bound(busy: int, idle: IdleSplit, *, drained: int = 0, fit: bool = True, events: int = 1) -> str:
    return decide(busy_ns=busy, idle=idle, drained_by_sync_ns=drained, fit=fit, events=events).bound


@pytest.mark.parametrize(
    ("busy", "idle", "drained", "verdict"),
    [
        (851, IdleSplit(dispatch=149), 149, "gpu"),
        (850, IdleSplit(dispatch=150), 0, "host"),
        (0, IdleSplit(dispatch=1000), 500, "sync"),
        (0, IdleSplit(dispatch=1000), 499, "host"),
        (0, IdleSplit(dispatch=100, host_other=100, launch_call=100, allocator=100, jit=100, sync=500), 0, "host"),
        (0, IdleSplit(dispatch=499, sync=501), 0, "mixed"),
        (0, IdleSplit(launch_latency=200, device_wait=200, graph_gap=100, sync=500), 0, "device_wait"),
        (0, IdleSplit(launch_latency=200, device_wait=200, graph_gap=99, sync=501), 0, "mixed"),
        (0, IdleSplit(dispatch=800, no_launch_record=200), 0, "host"),
        (0, IdleSplit(dispatch=799, no_launch_record=201), 799, "unknown"),
        (0, IdleSplit(unclassified=501, device_wait=499), 0, "mixed"),
        (1000, IdleSplit(), 0, "gpu"),
    ],
)
def test_thresholds(busy: int, idle: IdleSplit, drained: int, verdict: str) -> None:
    assert bound(busy, idle, drained=drained) == verdict


def test_unfit_and_empty_traces_have_no_verdict() -> None:
    assert bound(1000, IdleSplit(), fit=False) == "unknown"
    assert bound(0, IdleSplit(), events=0) == "unknown"
    assert decide(busy_ns=0, idle=IdleSplit(), drained_by_sync_ns=0, events=0).share is None


def test_the_share_is_that_of_the_rule_that_spoke() -> None:
    gpu = decide(busy_ns=900, idle=IdleSplit(dispatch=100), drained_by_sync_ns=0)
    assert (gpu.share, gpu.idle_share) == (0.9, 0.1)
    host = decide(busy_ns=0, idle=IdleSplit(dispatch=60, sync=40), drained_by_sync_ns=40)
    assert (host.share, host.idle_share) == (0.6, 1.0)


def test_thresholds_are_named() -> None:
    assert THRESHOLDS == {"idle_share_gpu": 0.15, "share_of_idle": 0.5, "no_launch_record_share_unknown": 0.2}
