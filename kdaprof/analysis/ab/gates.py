"""Each gate of a contract judged on its rows: pass, fail, or not established. Pure.

A bound is passed when the whole interval lies on its good side, and failed when the whole interval lies on its bad
side. Figures without an interval (medians from elsewhere) can fail a gate, since nobody may promote on a figure that
misses, but never pass one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kdaprof.analysis.ab.contract import (
    AnySpeedup,
    Contract,
    Gate,
    Geomean,
    NonRegression,
    PeakChange,
    Speedup,
    StageShare,
)
from kdaprof.analysis.ab.evidence import Evidence, ShapeEvidence
from kdaprof.analysis.ab.outcome import GateResult, Verdict
from kdaprof.analysis.ab.peaks import judge_peaks
from kdaprof.analysis.ab.rows import NO_ROUNDS, Row, barred, inverse, ratio_of
from kdaprof.analysis.ab.rows import Speedup as Found
from kdaprof.analysis.interleaved import MIN_ROUNDS, compare_geometric, geometric_mean
from kdaprof.analysis.stats import CONFIDENCE


def judge_gate(contract: Contract, gate: Gate, evidence: Evidence, rows: Sequence[Row]) -> GateResult:
    """The verdict of one gate on measured shapes. ValueError for a stage share, which is judged before any work."""
    chosen = {shape.name for shape in contract.chosen(gate)}
    name = gate.name or _name(gate)
    mine = [row for row in rows if row.shape in chosen]
    seen = [found for row in mine if (found := evidence.of(row.shape)) is not None]
    if isinstance(gate, Speedup):
        return _every(name, gate, mine, gate.min)
    if isinstance(gate, NonRegression):
        return _every(name, gate, mine, 1 / (1 + gate.band), times=lambda value: f"{1 / value:.3f} × the time of base")
    if isinstance(gate, Geomean):
        return _geomean(name, gate, mine, seen)
    if isinstance(gate, AnySpeedup):
        return _any(name, gate, mine, seen)
    if isinstance(gate, PeakChange):
        return judge_peaks(name, gate, mine)
    raise ValueError("a stage share is judged before any work")


def settle(found: Found, least: float) -> Verdict:
    """Where a speedup stands to the least that is wanted."""
    if found.value is None:
        return "not-established"
    if found.interval is None:
        return "fail" if found.value < least else "not-established"
    if 0 < found.rounds < MIN_ROUNDS:
        return "not-established"
    low, high = found.interval
    return "pass" if low >= least else "fail" if high < least else "not-established"


def speedup_text(found: Found) -> str:
    """`1.12 × (1.10…1.14)`, or why there is none."""
    if found.value is None:
        return found.why or "no figure"
    if found.interval is None:
        return f"{found.value:.6g} ×, without an interval"
    low, high = found.interval
    return f"{found.value:.4g} × ({low:.4g}…{high:.4g})"


def _name(gate: Gate) -> str:
    chosen = () if isinstance(gate, StageShare) else (*gate.roles, *gate.shapes)
    kind = str(gate.__struct_config__.tag)
    return f"{kind} of {', '.join(chosen)}" if chosen else kind


def _want(gate: Speedup | NonRegression | Geomean | AnySpeedup) -> str:
    if isinstance(gate, NonRegression):
        return f"≤ {1 + gate.band:.4g} × the time of base"
    return f"≥ {gate.min:.4g} ×"


def _every(
    name: str,
    gate: Speedup | NonRegression,
    rows: Sequence[Row],
    least: float,
    times: Callable[[float], str] | None = None,
) -> GateResult:
    """All rows must hold: the worst decides, and one that fails decides before one that is unknown."""
    order: dict[Verdict, int] = {"fail": 0, "not-established": 1, "pass": 2}
    verdicts = [(settle(row.speedup, least), row) for row in rows]
    verdict, row = min(verdicts, key=lambda pair: (order[pair[0]], _known(pair[1].speedup.value)))
    found = row.speedup
    got = speedup_text(found) if times is None else _as_time(found, times)
    return GateResult(
        name=name,
        kind=str(gate.__struct_config__.tag),
        want=_want(gate),
        got=f"{row.shape}: {got}",
        verdict=verdict,
        value=found.value,
        interval=found.interval,
        limit=least,
        shape=row.shape,
    )


def _known(value: float | None) -> float:
    return float("-inf") if value is None else value


def _as_time(found: Found, times: Callable[[float], str]) -> str:
    if found.value is None:
        return found.why or "no figure"
    if found.interval is None:
        return f"{times(found.value)}, without an interval"
    return f"{times(found.value)} ({1 / found.interval[1]:.3f}…{1 / found.interval[0]:.3f})"


def _geomean(name: str, gate: Geomean, rows: Sequence[Row], seen: Sequence[ShapeEvidence]) -> GateResult:
    found = geomean_of(rows, seen)
    return GateResult(
        name=name,
        kind="geomean",
        want=_want(gate),
        got=speedup_text(found),
        verdict=settle(found, gate.min),
        value=found.value,
        interval=found.interval,
        limit=gate.min,
    )


def geomean_of(rows: Sequence[Row], seen: Sequence[ShapeEvidence]) -> Found:
    """Geometric mean of the rows' speedups, with its interval where all of them have rounds."""
    for row in rows:
        if row.speedup.value is None:
            return Found(value=None, interval=None, why=f"{row.shape}: {row.speedup.why}")
    if all(row.speedup.interval is None for row in rows):
        value = geometric_mean([row.speedup.value for row in rows if row.speedup.value is not None])
        return Found(value=value, interval=None, why=NO_ROUNDS)
    if any(found.base.summary is not None for found in seen):
        return Found(value=None, interval=None, why="some shapes have rounds and others only medians")
    return inverse(compare_geometric([(found.base.rounds, found.cand.rounds) for found in seen]))


def _any(name: str, gate: AnySpeedup, rows: Sequence[Row], seen: Sequence[ShapeEvidence]) -> GateResult:
    """Bonferroni: with k chances, each has its interval at 1 − 0.05 / k, so that the claim as a whole keeps 95 %."""
    confidence = 1 - (1 - CONFIDENCE) / len(rows)
    found = {row.shape: row.speedup for row in rows}
    found |= {one.shape: inverse(ratio_of(one, confidence=confidence)) for one in seen if barred(one) is None}
    order: dict[Verdict, int] = {"pass": 0, "not-established": 1, "fail": 2}
    verdicts = {shape: settle(speedup, gate.min) for shape, speedup in found.items()}
    best = min(found, key=lambda shape: (order[verdicts[shape]], -_known(found[shape].value)))
    return GateResult(
        name=name,
        kind="any-speedup",
        want=f"{_want(gate)} on at least one of {len(rows)}",
        got=f"best {best}: {speedup_text(found[best])}",
        verdict=verdicts[best],
        value=found[best].value,
        interval=found[best].interval,
        limit=gate.min,
        shape=best,
    )
