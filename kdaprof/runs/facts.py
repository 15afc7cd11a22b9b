"""A figure with everything that says how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Unit = Literal["ns", "B", "1", "fraction", "B/s", "FLOP/s", "Hz", "W", "J", "s", "°C"]
Provenance = Literal["measured", "derived", "declared"]
Missing = Literal["no-device", "not-supported", "not-applicable", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a rule refuses a figure: `Q02` and one sentence with its numbers."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One figure: value in base units, spread over its samples, 95 % interval, origin, and whether it may be quoted.

    `value` is None exactly when `missing` names the kind of absence; `detail` then says why in words. Fractions
    are 0…1. `sources` are the fact ids that a derived figure was computed from.
    """

    value: float | int | None
    unit: Unit
    n: int = 0
    min: float | int | None = None
    max: float | int | None = None
    p10: float | None = None
    p90: float | None = None
    ci95: tuple[float, float] | None = None
    provenance: Provenance = "measured"
    sources: tuple[str, ...] = ()
    quotable: bool = True
    reasons: tuple[Reason, ...] = ()
    missing: Missing | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) != (self.missing is not None):
            raise ValueError("a fact has a value, or says why it is missing; never both, never neither")

    def refuse(self, *reasons: Reason) -> Fact:
        """The same figure, no longer quotable, with further reasons."""
        return replace(self, quotable=False, reasons=self.reasons + reasons) if reasons else self


def absent(unit: Unit, missing: Missing, detail: str) -> Fact:
    """A figure that could not be had, and why."""
    return Fact(value=None, unit=unit, missing=missing, detail=detail, quotable=False)


def fact_id(run_id: str, cell_id: str, name: str) -> str:
    """`<run id>/<cell id>/<fact>`."""
    return f"{run_id}/{cell_id}/{name}"


# Facts of a cell in the order in which tables show them, with their units. Every one is present in its cell.
EAGER_FACTS: dict[str, Unit] = {
    "wall_ns": "ns",
    "host_ns": "ns",
    "gpu_span_ns": "ns",
    "gpu_busy_ns": "ns",
    "pipelined_ns": "ns",
    "idle_ns": "ns",
    "host_bound": "fraction",
    "launches": "1",
    "allocs": "1",
    "alloc_bytes": "B",
    "peak_bytes": "B",
    "reserved_growth_bytes": "B",
    "inflation": "1",
    "graph_removed": "fraction",
    "idle_head_ns": "ns",
    "idle_sync_ns": "ns",
    "idle_allocator_ns": "ns",
    "idle_jit_ns": "ns",
    "idle_dispatch_ns": "ns",
    "idle_host_other_ns": "ns",
    "idle_launch_call_ns": "ns",
    "idle_launch_latency_ns": "ns",
    "idle_device_wait_ns": "ns",
    "idle_graph_gap_ns": "ns",
    "idle_no_launch_record_ns": "ns",
    "idle_unclassified_ns": "ns",
    "idle_drain_ns": "ns",
    "drained_by_sync_ns": "ns",
    "floor_ns": "ns",
    "floor_share": "fraction",
    "util_mean": "fraction",
    "util_idle_share": "fraction",
    "error_l2": "fraction",
    "error_max": "1",
    "cold_ns": "ns",
    "tokens_per_s": "1",
}
GRAPH_FACTS: dict[str, Unit] = {
    "wall_ns": "ns",
    "gpu_busy_ns": "ns",
    "pool_bytes": "B",
    "input_copy_ns": "ns",
    "error_l2": "fraction",
}


def facts_of(mode: str) -> dict[str, Unit]:
    """Names and units of the facts that a cell of this mode must hold."""
    return EAGER_FACTS if mode == "eager" else GRAPH_FACTS
