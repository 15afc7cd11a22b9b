"""Every figure of a cell, in the order of the contract, each present or missing with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from kdaprof.analysis import composed, measured
from kdaprof.analysis.absence import needs_gpu, why_absent
from kdaprof.analysis.celldata import CellData
from kdaprof.analysis.idle_facts import idle_facts
from kdaprof.runs.facts import Fact, facts_of
from kdaprof.runs.record import CellRecord

Measured = Callable[[CellData], Fact | None]
Composed = Callable[[CellData, Mapping[str, Fact]], Fact]

MEASURED: Mapping[str, Measured] = MappingProxyType(
    {
        "wall_ns": measured.wall_ns,
        "host_ns": measured.host_ns,
        "gpu_span_ns": measured.gpu_span_ns,
        "gpu_busy_ns": measured.gpu_busy_ns,
        "pipelined_ns": measured.pipelined_ns,
        "launches": measured.launches,
        "allocs": measured.allocs,
        "alloc_bytes": measured.alloc_bytes,
        "peak_bytes": measured.peak_bytes,
        "reserved_growth_bytes": measured.reserved_growth_bytes,
        "util_mean": measured.util_mean,
        "util_idle_share": measured.util_idle_share,
        "error_l2": measured.error_l2,
        "error_max": measured.error_max,
        "cold_ns": measured.cold_ns,
        "pool_bytes": measured.pool_bytes,
        "input_copy_ns": measured.input_copy_ns,
    }
)
# In the order in which each finds what it needs.
COMPOSED: Mapping[str, Composed] = MappingProxyType(
    {
        "idle_ns": composed.idle_ns,
        "host_bound": composed.host_bound,
        "inflation": composed.inflation,
        "floor_ns": composed.floor_ns,
        "floor_share": composed.floor_share,
        "tokens_per_s": composed.tokens_per_s,
    }
)


def own_facts(data: CellData) -> dict[str, Fact]:
    """All figures that the cell gives by itself. `graph_removed` needs another cell: see `cross_facts`."""
    units = facts_of(data.cell.key.mode)
    found: dict[str, Fact] = {}
    for name, unit in units.items():
        take = MEASURED.get(name) if data.cell.status == "ok" else None
        fact = take(data) if take is not None else None
        found[name] = fact if fact is not None else why_absent(data, name, unit)
    if data.cell.status != "ok" or data.cell.key.mode != "eager":
        return found
    # Without a device its figures have one reason, the machine's, not that of the part that is missing first.
    on_gpu = data.observed is not None and data.observed.device == "cuda"
    for name, make in COMPOSED.items():
        if on_gpu or not needs_gpu(name):
            found[name] = make(data, found)
    return found | idle_facts(data, found) if on_gpu else found


def cross_facts(
    data: CellData, facts: Mapping[str, Fact], graph: tuple[CellRecord, Mapping[str, Fact]] | None
) -> dict[str, Fact]:
    """The figures with those added that need the cell's graph sibling; the same for any other cell."""
    on_gpu = data.observed is not None and data.observed.device == "cuda"
    if data.cell.key.mode != "eager" or data.cell.status != "ok" or not on_gpu:
        return dict(facts)
    made = composed.graph_removed(data, facts, graph)
    return {name: made if name == "graph_removed" else fact for name, fact in facts.items()}
