"""Figures made from other figures of the run, with propagated intervals and their sources by id."""

from __future__ import annotations

from collections.abc import Mapping

from kdaprof.analysis.celldata import CellData
from kdaprof.analysis.figure import derived, estimate_of, whole, without
from kdaprof.analysis.floor import compulsory_floor
from kdaprof.analysis.measured import profiled_wall_ns
from kdaprof.analysis.propagate import difference, exact, one_minus, ratio, removed_share
from kdaprof.runs.facts import Fact, absent, fact_id
from kdaprof.runs.record import CellRecord

Facts = Mapping[str, Fact]


def whole_of(data: CellData) -> str:
    """The figure that idle is a part of: the wall of a synchronised call, the device's own span of a loop's phase.

    The host's borders of a phase in a running loop say when work was issued, not when it was done.
    """
    return "gpu_span_ns" if data.in_loop else "wall_ns"


def idle_ns(data: CellData, facts: Facts) -> Fact:
    """Wall − busy: the time of a call in which the device had nothing to do. In a loop: device span − busy."""
    name = whole_of(data)
    wall, busy = facts[name], facts["gpu_busy_ns"]
    return without("ns", ((name, wall), ("gpu_busy_ns", busy))) or derived(
        "ns",
        difference(estimate_of(wall), estimate_of(busy)),
        (wall, busy),
        ids(data, name, "gpu_busy_ns"),
    )


def host_bound(data: CellData, facts: Facts) -> Fact:
    """Idle / wall = 1 − busy / wall; so written, `wall` enters the interval once."""
    name = whole_of(data)
    wall, busy = facts[name], facts["gpu_busy_ns"]
    gone = without("fraction", ((name, wall), ("gpu_busy_ns", busy)))
    if gone is not None:
        return gone
    if not wall.value:
        return absent("fraction", "not-applicable", "the wall is 0: below the clock's resolution")
    share = one_minus(ratio(estimate_of(busy), estimate_of(wall)))
    return derived("fraction", share, (wall, busy), ids(data, "idle_ns", name))


def inflation(data: CellData, facts: Facts) -> Fact:
    """Profiled wall (CUDA activity only) / plain wall: how much the profiler slows this call."""
    wall, profiled = facts["wall_ns"], profiled_wall_ns(data)
    gone = without("1", (("gpu_busy_ns", facts["gpu_busy_ns"]), ("wall_ns", wall)))
    if gone is not None:
        return gone
    if profiled is None or not wall.value:
        return absent("1", "not-supported", "no wall of a profiled repeat was kept")
    return derived("1", ratio(estimate_of(profiled), estimate_of(wall)), (profiled, wall), ids(data, "wall_ns"))


def floor_ns(data: CellData, facts: Facts) -> Fact:
    """max(FLOPs / rate, compulsory bytes / bandwidth), from the ceilings measured in this run."""
    work = data.observed.work if data.observed else None
    if work is None:
        return absent("ns", "not-applicable", "the operations and bytes of this workload are not known")
    floor = compulsory_floor(work, data.run.ceilings)
    if isinstance(floor, str):
        return absent("ns", "not-supported", floor)
    text = (
        f"{floor.bound}: {floor.compute_ns:.0f} ns by {floor.rate.name}, {floor.memory_ns:.0f} ns by compulsory bytes"
    )
    sources = tuple(f"{data.run.run}/ceilings/{ceiling.name}" for ceiling in (floor.rate, floor.bandwidth))
    return Fact(value=whole(floor.ns, "ns"), unit="ns", provenance=floor.provenance, sources=sources, detail=text)


def floor_share(data: CellData, facts: Facts) -> Fact:
    """Floor / busy: 1 is as fast as the card allows; more than 1 says that the floor is wrong."""
    floor, busy = facts["floor_ns"], facts["gpu_busy_ns"]
    gone = without("fraction", (("floor_ns", floor), ("gpu_busy_ns", busy)))
    if gone is not None:
        return gone
    if not busy.value:
        return absent("fraction", "not-applicable", "the device was not busy")
    share = ratio(exact(float(floor.value or 0)), estimate_of(busy))
    return derived("fraction", share, (busy,), ids(data, "floor_ns", "gpu_busy_ns"))


def tokens_per_s(data: CellData, facts: Facts) -> Fact:
    """Tokens of a call / wall."""
    wall, tokens = facts["wall_ns"], data.observed.tokens if data.observed else None
    gone = without("1", (("wall_ns", wall),))
    if gone is not None:
        return gone
    if tokens is None or not wall.value:
        return absent("1", "not-applicable", "the workload has no tokens" if wall.value else "the wall is 0")
    return derived("1", ratio(exact(tokens * 1e9), estimate_of(wall)), (wall,), ids(data, "wall_ns"))


def graph_removed(data: CellData, facts: Facts, graph: tuple[CellRecord, Facts] | None) -> Fact:
    """(wall − graph wall) / (wall − busy): the share of the launch overhead that capturing removed."""
    if graph is None:
        return absent("fraction", "not-applicable", "this run holds no graph cell of it (--modes eager,graph)")
    cell, captured = graph
    wall, busy, after = facts["wall_ns"], facts["gpu_busy_ns"], captured["wall_ns"]
    parts = (("the graph's wall_ns", after), ("wall_ns", wall), ("gpu_busy_ns", busy))
    gone = without("fraction", parts)
    if gone is not None:
        return gone
    overhead = difference(estimate_of(wall), estimate_of(busy))
    if overhead.interval is None or overhead.interval[0] <= 0 <= overhead.interval[1]:
        lies = "has no interval" if overhead.interval is None else "lies within noise of 0"
        return absent("fraction", "not-applicable", f"wall − busy, {overhead.value:.0f} ns, {lies}: nothing to remove")
    share = removed_share(estimate_of(wall), estimate_of(after), estimate_of(busy))
    sources = (*ids(data, "wall_ns", "gpu_busy_ns"), fact_id(data.run.run, cell.id, "wall_ns"))
    return derived("fraction", share, (wall, busy, after), sources)


def ids(data: CellData, *names: str) -> tuple[str, ...]:
    """Fact ids of figures of this cell."""
    return tuple(fact_id(data.run.run, data.cell.id, name) for name in names)
