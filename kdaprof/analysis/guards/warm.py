"""Q01 and Q14: a series, or the memory pool under it, that had not settled while it was read."""

from __future__ import annotations

from kdaprof.analysis.guards.families import SAMPLED_BY_HOST
from kdaprof.analysis.guards.rule import GuardRule
from kdaprof.analysis.view import CellView
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_bytes

GROWTH_BYTES_MAX = 0


def pool_growth_bytes(view: CellView) -> int | None:
    """Reserved memory, last minus first reading over the steady samples; None with fewer than two readings."""
    readings = [sample.reserved_bytes for sample in view.steady() if sample.reserved_bytes is not None]
    return readings[-1] - readings[0] if len(readings) > 1 else None


def _not_warm(view: CellView, name: str, fact: Fact) -> str | None:
    warmup = view.warmup
    if warmup.n and warmup.steady_from is None:
        return f"no steady segment in {warmup.n} samples{f': {warmup.detail}' if warmup.detail else ''}"
    steady = len(view.steady())
    if name in ("wall_ns", "host_ns") and fact.n > steady:
        return f"counts {fact.n - steady} samples from before the steady segment (it begins at {warmup.steady_from})"
    return None


def _pool_grew(view: CellView, name: str, fact: Fact) -> str | None:
    growth = pool_growth_bytes(view)
    if growth is None or growth <= GROWTH_BYTES_MAX:
        return None
    return f"reserved memory grew by {format_bytes(growth)} while the samples were taken"


NOT_WARM = GuardRule(
    id="Q01",
    title="not warm",
    explanation=(
        "Samples before the steady segment, or a series without one. A step of 1,810 ms, and one of 5,549 ms, were "
        "step 0; the warm step took 244 ms."
    ),
    touches=SAMPLED_BY_HOST | {"gpu_span_ns"},
    judge=_not_warm,
)
ALLOCATOR_MOVED = GuardRule(
    id="Q14",
    title="allocator moved",
    explanation=(
        "The memory pool grew during the samples, so that some of them paid the driver. A cold-pool call was once "
        "compared with a warm-pool step as if the pool were the same."
    ),
    touches=SAMPLED_BY_HOST | {"gpu_span_ns"},
    judge=_pool_grew,
    thresholds={"growth_bytes_max": GROWTH_BYTES_MAX},
)
