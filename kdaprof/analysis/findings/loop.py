"""Findings about a watched loop: a profiler that slows the steps after its window, and what watching costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kdaprof.analysis.loop_cost import loop_cost
from kdaprof.analysis.stats import median
from kdaprof.analysis.view import CellView
from kdaprof.runs.results import Finding
from kdaprof.runs.samples import Sample
from kdaprof.runs.units import format_fraction, format_ns
from kdaprof.timeline.loop_ranges import WHOLE

AROUND = 20
"""Steps compared on each side of the first window; the one right behind it is left out, it follows a long pause."""
LEAST = 5
SLOWER = 1.05
"""A profiler that stays attached slows a host-bound step by far more than this."""
SIGMAS = 3.0
COST_SHARE_MAX = 0.01


def left_attached(views: Sequence[CellView]) -> Iterator[Finding]:
    """Steps after the first profiled window are slower than those before it: the profiler never quite let go."""
    for view in views:
        sides = _around_first_window(view)
        if sides is None:
            continue
        before, after = sides
        ratio = median(after) / median(before)
        noise = math.hypot(_error(before), _error(after))
        if ratio <= SLOWER or math.log(ratio) <= SIGMAS * noise:
            continue
        yield Finding(
            id="profiler-left-attached",
            severity="warn",
            cell=view.cell.id,
            text=(
                f"steps take {format_ns(median(after))} after the first profiled window and took "
                f"{format_ns(median(before))} before it ({ratio:.2f} times): the profiler stays attached and slows them"
            ),
            evidence={
                "ratio": ratio,
                "before_ns": round(median(before)),
                "after_ns": round(median(after)),
                "steps_before": len(before),
                "steps_after": len(after),
                "noise_of_log_ratio": noise,
            },
            threshold={"ratio_max": SLOWER, "times_the_noise": SIGMAS},
            next=(
                "Quote only steps before the first window, or record none (WindowPlan(most=0)); TEARDOWN_CUPTI=1 lets "
                "torch detach CUPTI after each recording."
            ),
        )


def own_cost(views: Sequence[CellView]) -> Iterator[Finding]:
    """Watching takes more than its share of the step."""
    for view in views:
        cost = loop_cost(view.run) if _is_step(view) else None
        wall = view.facts["wall_ns"].value if cost is not None else None
        if cost is None or not wall or cost.whole_ns <= COST_SHARE_MAX * wall:
            continue
        share = cost.whole_ns / wall
        yield Finding(
            id="watching-costs",
            severity="info",
            cell=view.cell.id,
            text=(
                f"watching takes {format_ns(cost.whole_ns)} of a step of {format_ns(wall)} ({format_fraction(share)}): "
                f"{cost.phases} phases at {format_ns(cost.phase_ns)}, the step itself {format_ns(cost.step_ns)}"
                + (f", storing it {format_ns(cost.store_ns)}" if cost.store_ns is not None else "")
            ),
            evidence={"own_ns": round(cost.whole_ns), "wall_ns": wall, "own_share": share, "phases": cost.phases},
            threshold={"own_share_max": COST_SHARE_MAX},
            next="Watch fewer phases, or take several optimiser steps as one step.",
        )


def is_part(view: CellView) -> bool:
    """Whether the cell is a phase of a watched loop, not its steps."""
    return _in_loop(view) and view.cell.key.phase != WHOLE


def _in_loop(view: CellView) -> bool:
    return view.cell.observed is not None and view.cell.observed.borders == "loop"


def _is_step(view: CellView) -> bool:
    return _in_loop(view) and view.cell.key.phase == WHOLE


def _around_first_window(view: CellView) -> tuple[list[float], list[float]] | None:
    """Walls of the unprofiled steps before and after the first window; None where either side has too few."""
    profiled = [s.index for s in view.samples if s.repeat.startswith("profiled-")] if _is_step(view) else []
    if not profiled:
        return None
    first = min(profiled)
    last = first
    while last + 1 in profiled:
        last += 1
    steady = view.warmup.steady_from or 0
    plain = view.of("unprofiled")
    before = _walls(s for s in plain if max(steady, first - AROUND) <= s.index < first)
    after = _walls(s for s in plain if last + 1 < s.index <= last + 1 + AROUND)
    return (before, after) if min(len(before), len(after)) >= LEAST else None


def _walls(samples: Iterator[Sample]) -> list[float]:
    return [float(s.wall_ns) for s in samples if s.wall_ns]


def _error(walls: Sequence[float]) -> float:
    """Standard error of the log of the median, from the median deviation: no single slow step decides."""
    logs = [math.log(wall) for wall in walls]
    middle = median(logs)
    return 1.2533 * 1.4826 * median(abs(value - middle) for value in logs) / math.sqrt(len(logs))
