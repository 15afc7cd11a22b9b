"""Findings about a step that does not stay warm: compiling again, or drifting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdaprof.analysis.findings.figures import name_of, on_card
from kdaprof.analysis.step.cold import DRIFT_MIN, drift_of, retuned
from kdaprof.analysis.view import CellView
from kdaprof.runs.results import Finding
from kdaprof.runs.units import format_fraction, format_ns


def retuning(views: Sequence[CellView]) -> Iterator[Finding]:
    """Something was compiled or tuned again behind the warm-up."""
    for view in views:
        seen = view.cell.observed
        if seen is None or not on_card(view):
            continue
        again = retuned(seen.slow_steps, view.warmup.steady_from)
        if not again:
            continue
        steps = sorted({index for index, _ in again})
        longest = max((event for _, event in again), key=lambda event: event.ns)
        yield Finding(
            id="retuned-in-steady-part",
            severity="warn",
            cell=view.cell.id,
            text=(
                f"{name_of(view)}: {len(again)} compilations or tunings in {len(steps)} steady steps, the longest "
                f"{longest.cause} of {longest.name} ({format_ns(longest.ns)})"
            ),
            evidence={"events": len(again), "steps": len(steps), "first_index": steps[0], "longest_ns": longest.ns},
            threshold={"events_max": 0},
            next="Find what changes between steps (a length, a dtype, a flag): each new value compiles once.",
        )


def drift(views: Sequence[CellView]) -> Iterator[Finding]:
    """A step whose steady part has a trend."""
    for view in views:
        if not on_card(view) or view.cell.key.phase != "step" or view.warmup.steady_from is None:
            continue
        trend = drift_of([sample.wall_ns for sample in view.steady() if sample.wall_ns is not None])
        if trend is None or not trend.drifts:
            continue
        way = "longer" if trend.share > 0 else "shorter"
        yield Finding(
            id="steady-part-drifts",
            severity="info",
            cell=view.cell.id,
            text=(
                f"{name_of(view)}: from the first to the last of {trend.n} steady steps the wall gets "
                f"{format_fraction(abs(trend.share))} {way} (95 %: {trend.low:+.0%}…{trend.high:+.0%})"
            ),
            evidence={"share": trend.share, "low": trend.low, "high": trend.high, "samples": trend.n},
            threshold={"share_min": DRIFT_MIN},
            next="Hosts drift by as much as 30 %: compare only what was interleaved, and look at the clocks.",
        )
