"""Idle classes of a call: shares of the profiled repeats, scaled to the idle of the unprofiled call.

The profiler slows the host, so its nanoseconds are not the call's; its shares are. Each class is given from the
CPU + CUDA recording, which alone can tell operators from other Python, with the range that the two recordings span.
"""

from __future__ import annotations

from collections.abc import Mapping

from kdaprof.analysis.celldata import CellData
from kdaprof.analysis.composed import ids
from kdaprof.analysis.figure import without
from kdaprof.analysis.idle import CLASSES
from kdaprof.analysis.recordings import Recording
from kdaprof.runs.facts import Fact, absent

# head is classified like a gap, so that it stands in the classes as well; drain is a class of its own.
NAMES = ("idle_head_ns", *(f"idle_{name}_ns" for name in CLASSES), "idle_drain_ns", "drained_by_sync_ns")


def idle_shares(recording: Recording) -> Mapping[str, float]:
    """Share of each class in the probe idle (wall − busy) of the repeats, pooled; {} when there was none."""
    idle = sum(split.idle_ns or 0 for split, _ in recording.seen)
    if idle <= 0:
        return {}
    totals = dict.fromkeys(NAMES, 0)
    for _, device in recording.seen:
        totals["idle_head_ns"] += device.head_ns
        totals["idle_drain_ns"] += device.drain_ns
        totals["drained_by_sync_ns"] += device.drained_by_sync_ns
        for name, spent in device.idle.by_class().items():
            totals[f"idle_{name}_ns"] += spent
    return {name: total / idle for name, total in totals.items()}


def idle_facts(data: CellData, facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Every idle class of the cell, or why there is none."""
    idle = facts["idle_ns"]
    gone = without("ns", (("idle_ns", idle),))
    if gone is None and (idle.value or 0) <= 0:
        gone = absent("ns", "not-applicable", "busy is not below wall: there is no idle to divide")
    kinds = [kind for kind in ("profiled-full", "profiled-cuda") if idle_shares(data.recording(kind))]
    if gone is None and not kinds:
        gone = absent("ns", "not-supported", "no recording of this cell shows idle")
    if gone is not None:
        return dict.fromkeys(NAMES, gone)
    shares = [idle_shares(data.recording(kind)) for kind in kinds]
    count = len(data.recording(kinds[0]).seen)
    # Beside each other where both recordings are there; one alone says so.
    detail = None if len(kinds) == 2 else f"from {kinds[0]} alone"
    return {
        name: _scaled(idle, [share[name] for share in shares], count, ids(data, "idle_ns"), detail) for name in NAMES
    }


def _scaled(idle: Fact, shares: list[float], n: int, sources: tuple[str, ...], detail: str | None) -> Fact:
    spans = [round(share * float(idle.value or 0)) for share in shares]
    return Fact(
        value=spans[0],
        unit="ns",
        n=n,
        min=min(spans),
        max=max(spans),
        provenance="derived",
        sources=sources,
        detail=detail,
    )
