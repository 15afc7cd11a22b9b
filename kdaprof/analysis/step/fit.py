"""A sweep's line, wall = fixed + slope · work, with intervals and residuals, and where a step turns GPU-bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kdaprof.analysis.findings.figures import quoted
from kdaprof.analysis.guards.apply import may_enter_ratio
from kdaprof.analysis.guards.fit import why_not_fitted
from kdaprof.analysis.stats import t_factor
from kdaprof.analysis.trace.bound import IDLE_SHARE_GPU
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import Fact, Reason, absent, fact_id
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import RunResults


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One step of a sweep: `work` is the product of the swept sizes."""

    key: CellKey
    work: int
    wall: Fact
    busy: Fact
    host_bound: Fact | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One path's line over the points whose walls may enter a fit; `left_out` counts the others."""

    path: str
    mode: str
    fixed: Fact
    slope: Fact
    residuals_ns: tuple[float, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Between which two amounts of work a path's eager step turns from host- to GPU-bound; None on a side: not seen."""

    path: str
    host_until: int | None
    gpu_from: int | None


def points_of(record: RunRecord, results: RunResults, over: Sequence[str]) -> tuple[Point, ...]:
    """The steps of a sweep by path, mode and work. `over` names the swept axes, as in cell ids."""
    known = {cell.id: cell for cell in results.cells}
    points = []
    for cell in record.cells:
        if cell.key.phase != "step" or cell.id not in known or cell.status != "ok":
            continue
        facts = known[cell.id].facts
        points.append(
            Point(
                key=cell.key,
                work=math.prod(cell.key.size(axis) for axis in over),
                wall=facts["wall_ns"],
                busy=facts["gpu_busy_ns"],
                host_bound=facts.get("host_bound"),
            )
        )
    return tuple(sorted(points, key=lambda p: (p.key.path, p.key.mode, p.work)))


def fits_of(run: str, points: Sequence[Point]) -> tuple[Fit, ...]:
    """A line a path and mode."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        groups.setdefault((point.key.path, point.key.mode), []).append(point)
    return tuple(_fit(run, path, mode, many) for (path, mode), many in groups.items())


def _fit(run: str, path: str, mode: str, points: Sequence[Point]) -> Fit:
    fit = [point for point in points if may_enter_ratio(point.wall)]
    out = len(points) - len(fit)
    sources = tuple(fact_id(run, point.key.id, "wall_ns") for point in fit)
    if len({point.work for point in fit}) < 2:
        rules = sorted({reason.rule for point in points for reason in point.wall.reasons})
        told = f" ({', '.join(rules)})" if rules else ""
        why = f"{len(fit)} of {len(points)} walls may enter a fit{told}"
        gone = absent("ns", "refused" if rules else "not-applicable", why)
        return Fit(path=path, mode=mode, fixed=gone, slope=gone, residuals_ns=(), left_out=out)
    x = [float(point.work) for point in fit]
    y = [float(point.wall.value or 0) for point in fit]
    n, mean_x, mean_y = len(x), math.fsum(x) / len(x), math.fsum(y) / len(y)
    spread = math.fsum((a - mean_x) ** 2 for a in x)
    slope = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    fixed = mean_y - slope * mean_x
    residuals = tuple(b - fixed - slope * a for a, b in zip(x, y, strict=True))
    halves: tuple[float, float] | None = None
    if n > 2:
        noise = math.sqrt(math.fsum(r * r for r in residuals) / (n - 2))
        factor = t_factor(n - 2) * noise
        halves = (factor * math.sqrt(1 / n + mean_x**2 / spread), factor / math.sqrt(spread))
    made = [
        _judged(name, value, n, half, sources, len(set(x)))
        for name, value, half in zip(("fixed_ns", "slope_ns"), (fixed, slope), halves or (None, None), strict=True)
    ]
    return Fit(path=path, mode=mode, fixed=made[0], slope=made[1], residuals_ns=residuals, left_out=out)


def _judged(name: str, value: float, n: int, half: float | None, sources: tuple[str, ...], amounts: int) -> Fact:
    interval = None if half is None else (value - half, value + half)
    fact = Fact(value=value, unit="ns", n=n, ci95=interval, provenance="derived", sources=sources)
    text = why_not_fitted(name, fact, amounts)
    return fact if text is None else fact.refuse(Reason(rule="Q12", text=text))


def turns_of(points: Sequence[Point]) -> tuple[Turn, ...]:
    """Where each path's eager step stops waiting for the host: by the idle share below which a trace is GPU-bound."""
    paths = dict.fromkeys(point.key.path for point in points if point.key.mode == "eager")
    turns = []
    for path in paths:
        mine = [p for p in points if p.key.path == path and p.key.mode == "eager" and p.host_bound is not None]
        shares = [(p.work, quoted({"share": p.host_bound}, "share")) for p in mine if p.host_bound is not None]
        told = [(work, share) for work, share in shares if share is not None]
        host = [work for work, share in told if share >= IDLE_SHARE_GPU]
        gpu = [work for work, share in told if share < IDLE_SHARE_GPU and work > max(host, default=0)]
        turns.append(Turn(path=path, host_until=max(host, default=None), gpu_from=min(gpu, default=None)))
    return tuple(turns)
