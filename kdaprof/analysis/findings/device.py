"""Findings about the device: two instruments that disagree, and a floor that was beaten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdaprof.analysis.findings.figures import name_of, quoted
from kdaprof.analysis.guards.floor import FLOOR_SHARE_MIN, faster_than_floor
from kdaprof.analysis.view import CellView
from kdaprof.runs.results import Finding
from kdaprof.runs.units import format_fraction, format_ns

UTIL_DISAGREE_MAX = 0.15


def busy_share(view: CellView) -> float | None:
    """GPU busy time as a share of the loop that was sampled; of an unprofiled call where there was no loop.

    The loop has its own speed (the host drifts, and the sampler costs a little), so that its own time a call is
    what busy is compared with.
    """
    busy, wall = quoted(view.facts, "gpu_busy_ns"), quoted(view.facts, "wall_ns")
    loops = [(s.wall_ns, s.calls) for s in view.of("util") if s.wall_ns is not None and s.calls > 1]
    calls = sum(n for _, n in loops)
    per_call = sum(ns for ns, _ in loops) / calls if calls else wall
    return busy / per_call if busy is not None and per_call else None


def utilisation_disagrees(views: Sequence[CellView]) -> Iterator[Finding]:
    """Sampled utilisation and the device-busy share differ by more than 15 points."""
    for view in views:
        share, util = busy_share(view), quoted(view.facts, "util_mean")
        if share is None or util is None or abs(util - share) <= UTIL_DISAGREE_MAX:
            continue
        yield Finding(
            id="utilisation-disagrees",
            severity="warn",
            cell=view.cell.id,
            text=(
                f"{name_of(view)}: sampled utilisation is {format_fraction(util)}, the device-busy share of the "
                f"same loop {format_fraction(share)}"
            ),
            evidence={"util_mean": util, "busy_share": share, "difference": util - share},
            threshold={"difference_max": UTIL_DISAGREE_MAX},
            next=(
                "Do not quote the split before this is explained: another process on the card, events lost by the "
                "profiler, or a loop that does not run what was profiled."
            ),
        )


def beaten_floor(views: Sequence[CellView]) -> Iterator[Finding]:
    """A kernel faster than its floor: a finding about the floor."""
    for view in views:
        pair = faster_than_floor(view)
        if pair is None or quoted(view.facts, "gpu_busy_ns") is None:
            continue
        yield Finding(
            id="faster-than-floor",
            severity="warn",
            cell=view.cell.id,
            text=(
                f"{name_of(view)}: busy {format_ns(pair[0])} is below its floor of {format_ns(pair[1])}: the floor is "
                "wrong, not the kernel fast"
            ),
            evidence={"gpu_busy_ns": pair[0], "floor_ns": pair[1], "share": pair[0] / pair[1]},
            threshold={"floor_share_min": FLOOR_SHARE_MIN},
            next="Check the bytes and FLOPs counted, the ceiling, and that inputs were evicted from L2 (--cache).",
        )
