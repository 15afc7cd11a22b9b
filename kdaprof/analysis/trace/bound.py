"""The verdict: what bounds the window, by named thresholds that are printed with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kdaprof.analysis.trace.idle import IdleSplit
from kdaprof.runs.units import format_fraction

IDLE_SHARE_GPU = 0.15
"""A device that idles less than this share of the window is what bounds it."""

SHARE_OF_IDLE = 0.50
"""A cause that holds at least this share of the idle is the verdict."""

NO_RECORD_SHARE_UNKNOWN = 0.20
"""With more of the idle than this after events without a launch record, nobody can tell."""

Bound = Literal["gpu", "host", "sync", "device_wait", "mixed", "unknown"]

HOST_CLASSES = ("dispatch", "host_other", "launch_call", "allocator", "jit")
DEVICE_CLASSES = ("launch_latency", "device_wait", "graph_gap")

THRESHOLDS = {
    "idle_share_gpu": IDLE_SHARE_GPU,
    "share_of_idle": SHARE_OF_IDLE,
    "no_launch_record_share_unknown": NO_RECORD_SHARE_UNKNOWN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`bound`, and the share that decided it: of the window for gpu (busy), of the idle otherwise, None if unknown.

    `why`: the rule that spoke, in words.
    """

    bound: Bound
    share: float | None
    idle_share: float | None
    why: str


def decide(*, busy_ns: int, idle: IdleSplit, drained_by_sync_ns: int, fit: bool = True, events: int = 1) -> Decision:
    """Apply the thresholds, in their order.

    `fit` is False when the quality gate says unfit; `events` counts device events in the window.
    """
    idle_ns = idle.total_ns
    if not events:
        return Decision(bound="unknown", share=None, idle_share=None, why="there is no device event")
    window = busy_ns + idle_ns
    idle_share = idle_ns / window if window else 0.0
    if not fit:
        return Decision(bound="unknown", share=None, idle_share=idle_share, why="the trace is not fit for a verdict")
    lost = idle.no_launch_record / idle_ns if idle_ns else 0.0
    if lost > NO_RECORD_SHARE_UNKNOWN:
        why = f"{format_fraction(lost)} of the idle has no launch record"
        return Decision(bound="unknown", share=None, idle_share=idle_share, why=why)
    if idle_share < IDLE_SHARE_GPU:
        return Decision(
            bound="gpu",
            share=1.0 - idle_share,
            idle_share=idle_share,
            why=f"the device idles {format_fraction(idle_share)}",
        )
    classes = idle.by_class()
    shares: tuple[tuple[Bound, float, str], ...] = (
        ("sync", drained_by_sync_ns / idle_ns, "gaps drained by a synchronise"),
        ("host", sum(classes[name] for name in HOST_CLASSES) / idle_ns, "time the host spent before and in launches"),
        ("device_wait", sum(classes[name] for name in DEVICE_CLASSES) / idle_ns, "time after the launch was issued"),
    )
    for bound, share, what in shares:
        if share >= SHARE_OF_IDLE:
            return Decision(
                bound=bound, share=share, idle_share=idle_share, why=f"{what}: {format_fraction(share)} of the idle"
            )
    return Decision(bound="mixed", share=None, idle_share=idle_share, why="no cause holds half of the idle")
