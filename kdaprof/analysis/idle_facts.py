"""Idle classes of a call: shares of the profiled repeats, scaled to the idle of the unprofiled call.

The profiler slows the host, so its nanoseconds are not the call's; its shares are. Each class is given from the
CPU + CUDA recording, which alone can tell operators from other Python, with the range that the two recordings span.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kdaprof.analysis.celldata import CellData
from kdaprof.analysis.composed import ids
from kdaprof.analysis.figure import without
from kdaprof.analysis.recordings import Recording
from kdaprof.analysis.trace.idle import CLASSES
from kdaprof.runs.facts import Fact, absent

# head is classified like a gap, so that it stands in the classes as well; drain is a class of its own.
PARTS = (*(f"idle_{name}_ns" for name in CLASSES), "idle_drain_ns")
NAMES = ("idle_head_ns", *PARTS, "drained_by_sync_ns")


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
    value = _whole_parts(shares[0], round(float(idle.value or 0)))
    spans = [{name: round(share[name] * float(idle.value or 0)) for name in NAMES} for share in shares]
    return {
        name: Fact(
            value=value[name],
            unit="ns",
            n=len(data.recording(kinds[0]).seen),
            min=min(value[name], *(span[name] for span in spans)),
            max=max(value[name], *(span[name] for span in spans)),
            provenance="derived",
            sources=ids(data, "idle_ns"),
            # Beside each other where both recordings are there; one alone says so.
            detail=None if len(kinds) == 2 else f"from {kinds[0]} alone",
        )
        for name in NAMES
    }


def _whole_parts(shares: Mapping[str, float], idle_ns: int) -> dict[str, int]:
    """Shares as whole nanoseconds; the parts of the idle add up to it, the largest fractions being rounded up."""
    exact = {name: shares[name] * idle_ns for name in NAMES}
    whole = {name: round(exact[name]) if name not in PARTS else math.floor(exact[name]) for name in NAMES}
    left = idle_ns - sum(whole[name] for name in PARTS)
    for name in sorted(PARTS, key=lambda part: (whole[part] - exact[part], part))[: max(left, 0)]:
        whole[name] += 1
    return whole
