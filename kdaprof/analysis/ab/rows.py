"""The table of an experiment: a row a shape, with both medians, the speedup and its interval, and peak memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kdaprof.analysis.ab.contract import Contract, Role, Shape
from kdaprof.analysis.ab.evidence import Evidence, ShapeEvidence, SideEvidence
from kdaprof.analysis.figure import sampled
from kdaprof.analysis.guards.apply import NEVER_IN_A_RATIO
from kdaprof.analysis.guards.spread import too_wide
from kdaprof.analysis.interleaved import Ratio, compare_interleaved
from kdaprof.analysis.stats import CONFIDENCE, Interval, median
from kdaprof.runs.facts import Fact, Reason, absent

NO_ROUNDS = "known by its medians alone: without rounds there is no interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """base / cand: above 1 the candidate is faster. No interval where only medians are known; no value with `why`."""

    value: float | None
    interval: Interval | None
    rounds: int = 0
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One shape. Times are walls in ns, peaks in bytes above what was held before the call."""

    shape: str
    role: Role
    size: str | None
    base: Fact
    cand: Fact
    ratio: Ratio
    """cand / base, as everywhere in kdaprof: below 1 the candidate is faster."""
    speedup: Speedup
    base_peak: Fact
    cand_peak: Fact

    @property
    def peak_change(self) -> int | None:
        """Candidate − base in bytes; None when either is missing."""
        if self.base_peak.value is None or self.cand_peak.value is None:
            return None
        return int(self.cand_peak.value) - int(self.base_peak.value)


def rows_of(contract: Contract, evidence: Evidence) -> tuple[Row, ...]:
    """A row for each shape of the contract, in its order; one without evidence has all its figures missing."""
    return tuple(_row(shape, _of(evidence, shape.name)) for shape in contract.shapes)


def _of(evidence: Evidence, shape: str) -> ShapeEvidence:
    none = SideEvidence(error="it was not measured")
    return evidence.of(shape) or ShapeEvidence(shape=shape, base=none, cand=none)


def _row(shape: Shape, seen: ShapeEvidence) -> Row:
    ratio = ratio_of(seen)
    return Row(
        shape=shape.name,
        role=shape.role,
        size=shape.size,
        base=_wall(seen.base),
        cand=_wall(seen.cand),
        ratio=ratio,
        speedup=inverse(ratio),
        base_peak=_peak(seen.base),
        cand_peak=_peak(seen.cand),
    )


def ratio_of(seen: ShapeEvidence, *, confidence: float = CONFIDENCE) -> Ratio:
    """The ratio cand / base of a shape: from rounds, or from medians without an interval; none where a rule bars it."""
    why = barred(seen)
    if why is not None:
        return Ratio(value=None, interval=None, rounds=0, verdict="not-established", why=why)
    base, cand = seen.base.summary, seen.cand.summary
    if base is not None and cand is not None:
        value = cand.median_ns / base.median_ns
        return Ratio(value=value, interval=None, rounds=0, verdict="not-established", why=NO_ROUNDS)
    return compare_interleaved(seen.base.rounds, seen.cand.rounds, confidence=confidence)


def barred(seen: ShapeEvidence) -> str | None:
    """Why no ratio may be made of this shape; None when one may."""
    for name, side in (("base", seen.base), ("cand", seen.cand)):
        if side.error is not None:
            return f"{name}: {side.error}"
        if side.wrong is not None:
            return f"{name}: wrong output: {side.wrong}"
        if side.refused:
            return f"{name}: {_refusal(side.refused)}"
        if not side.rounds and side.summary is None:
            return f"{name}: no samples"
    if (seen.base.summary is None) != (seen.cand.summary is None):
        return "one side has samples and the other only medians: they were not interleaved"
    return None


def _refusal(reasons: Sequence[Reason]) -> str:
    """The reason that no interleaving heals, in full, and the names of the others."""
    first = next((reason for reason in reasons if reason.rule in NEVER_IN_A_RATIO), reasons[0])
    others = [reason.rule for reason in reasons if reason is not first]
    return f"{first.rule}: {first.text}" + (f" (also {', '.join(others)})" if others else "")


def inverse(ratio: Ratio) -> Speedup:
    """The speedup base / cand from the ratio cand / base."""
    if ratio.value is None:
        return Speedup(value=None, interval=None, rounds=ratio.rounds, why=ratio.why)
    interval = None if ratio.interval is None else (1 / ratio.interval[1], 1 / ratio.interval[0])
    return Speedup(value=1 / ratio.value, interval=interval, rounds=ratio.rounds, why=ratio.why)


def _wall(side: SideEvidence) -> Fact:
    if side.summary is not None:
        s = side.summary
        return Fact(
            value=round(s.median_ns),
            unit="ns",
            n=s.n,
            p10=s.p10_ns,
            p90=s.p90_ns,
            provenance="declared",
            detail=NO_ROUNDS,
        ).refuse(Reason("Q02", NO_ROUNDS))
    fact = sampled("ns", _pairs(side.rounds))
    if fact is None:
        return absent("ns", "failed", side.error or "no samples")
    told = (*side.refused, *side.noted)
    wide = too_wide("wall_ns", fact)
    if wide is not None and all(reason.rule != "Q02" for reason in told):
        told = (*told, Reason("Q02", wide))
    return fact.refuse(*told)


def _pairs(rounds: Mapping[int, Sequence[int]]) -> Iterator[tuple[int, float]]:
    return ((number, wall) for number in sorted(rounds) for wall in rounds[number])


def _peak(side: SideEvidence) -> Fact:
    if not side.peak_bytes:
        why = side.error or side.peak_missing or "peak memory was not reported"
        return absent("B", "failed" if side.error else "not-supported", why)
    peaks = side.peak_bytes
    return Fact(
        value=round(median(peaks)),
        unit="B",
        n=len(peaks),
        min=min(peaks),
        max=max(peaks),
        provenance="declared" if side.summary is not None else "measured",
    )
