"""Findings about time itself: series that never settle, spikes in the steady part, what the first call costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdaprof.analysis.findings.figures import name_of, on_card, quoted, times
from kdaprof.analysis.guards.warm import GROWTH_BYTES_MAX, pool_growth_bytes
from kdaprof.analysis.view import CellView
from kdaprof.runs.results import Finding, Scalar
from kdaprof.runs.units import format_bytes, format_fraction, format_ns

SPIKE_SHARE_MAX = 0.02
COLD_RATIO_NOTE = 10.0
COLD_WARN_NS = 10_000_000_000


def not_warm(views: Sequence[CellView]) -> Iterator[Finding]:
    """No steady state."""
    for view in views:
        warmup = view.warmup
        if not on_card(view) or not warmup.n or warmup.steady_from is not None:
            continue
        yield Finding(
            id="no-steady-state",
            severity="warn",
            cell=view.cell.id,
            text=": ".join(filter(None, (name_of(view), f"no steady segment in {warmup.n} samples", warmup.detail))),
            evidence={"samples": warmup.n, "change_points": len(warmup.change_points)},
            threshold={"steady_segment": True},
            next="Measure longer (--rounds, --samples) or find what still moves: compile, autotune, clocks.",
        )


def spikes(views: Sequence[CellView]) -> Iterator[Finding]:
    """Samples of the steady part that stand far above it: re-tuning, collections, a preempted host."""
    for view in views:
        steady = {sample.index for sample in view.steady()}
        found = [index for index in view.warmup.spikes if index in steady]
        if not on_card(view) or view.warmup.steady_from is None or len(found) <= SPIKE_SHARE_MAX * len(steady):
            continue
        yield Finding(
            id="spikes-in-steady-part",
            severity="info",
            cell=view.cell.id,
            text=(
                f"{name_of(view)}: {len(found)} of {len(steady)} steady samples "
                f"({format_fraction(len(found) / len(steady))}) stand far above the rest: re-tuning, a collection, or "
                "a preempted host"
            ),
            evidence={"spikes": len(found), "steady_samples": len(steady), "first_index": found[0]},
            threshold={"spike_share_max": SPIKE_SHARE_MAX},
            next="Look at the samples by index: regular spikes are re-tuning (a changing shape), lone ones the host.",
        )


def pool_grew(views: Sequence[CellView]) -> Iterator[Finding]:
    """Reserved memory grew while the steady samples were taken."""
    for view in views:
        growth = pool_growth_bytes(view)
        if not on_card(view) or growth is None or growth <= GROWTH_BYTES_MAX:
            continue
        yield Finding(
            id="pool-grew",
            severity="warn",
            cell=view.cell.id,
            text=f"{name_of(view)}: reserved memory grew by {format_bytes(growth)} during the steady samples",
            evidence={"growth_bytes": growth},
            threshold={"growth_bytes_max": GROWTH_BYTES_MAX},
            next="Find what is kept from call to call; until then its times include the driver's allocations (Q14).",
        )


def cold_start(views: Sequence[CellView]) -> Iterator[Finding]:
    """What the first call costs against a warm one: in a fresh process where measured, else step 0 of this one."""
    for view in views:
        if view.cell.key.mode != "eager":
            continue
        wall, cold = quoted(view.facts, "wall_ns"), quoted(view.facts, "cold_ns")
        step0 = next((s.wall_ns for s in view.of("unprofiled") if s.index == 0), None)
        first = cold if cold is not None else step0
        if not wall or first is None or first < COLD_RATIO_NOTE * wall:
            continue
        where = "in a fresh process with empty caches" if cold is not None else "of this process (step 0)"
        firsts = {"cold_ns": cold, "step0_ns": step0}
        numbers: dict[str, Scalar] = {name: value for name, value in firsts.items() if value is not None}
        numbers |= {"wall_ns": wall, "ratio": first / wall}
        yield Finding(
            id="cold-start",
            severity="warn" if first >= COLD_WARN_NS else "info",
            cell=view.cell.id,
            text=(
                f"{name_of(view)}: the first call {where} takes {format_ns(first)}, {times(first / wall)} a warm "
                f"call of {format_ns(wall)}"
            ),
            evidence=numbers,
            threshold={"ratio_note": COLD_RATIO_NOTE},
            next=(
                "Keep the compile caches between processes (TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR) and never read "
                "a step time at step 0."
            ),
        )
