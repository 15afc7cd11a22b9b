"""From samples or other figures to a fact: the same spread, interval and sources everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kdaprof.analysis.propagate import Estimate
from kdaprof.analysis.stats import median_interval, round_medians, summarise
from kdaprof.runs.facts import Fact, Unit, absent

_WHOLE = ("ns", "B")


def whole(value: float, unit: Unit) -> float | int:
    """Nanoseconds, bytes and counts that are whole as integers."""
    return round(value) if unit in _WHOLE or (unit == "1" and float(value).is_integer()) else value


def sampled(unit: Unit, pairs: Iterable[tuple[int, float]]) -> Fact | None:
    """A measured figure from (round, value) pairs: the median of all, its interval from rounds. None without pairs."""
    listed = list(pairs)
    if not listed:
        return None
    s = summarise(value for _, value in listed)
    confidence = median_interval(round_medians(listed), s.median)
    return Fact(
        value=whole(s.median, unit),
        unit=unit,
        n=s.n,
        min=whole(s.min, unit),
        max=whole(s.max, unit),
        p10=s.p10,
        p90=s.p90,
        ci95=confidence.interval,
        detail=confidence.why,
    )


def derived(unit: Unit, estimate: Estimate, parts: Sequence[Fact], sources: Sequence[str], detail: str = "") -> Fact:
    """A figure made from others, with the interval that theirs give it; `n` is that of the part with fewest."""
    return Fact(
        value=whole(estimate.value, unit),
        unit=unit,
        n=min((part.n for part in parts if part.n), default=0),
        ci95=estimate.interval,
        provenance="derived",
        sources=tuple(sources),
        detail=detail or None,
    )


def estimate_of(fact: Fact) -> Estimate:
    """Value and interval of a figure that is there; ValueError when it is missing."""
    if fact.value is None:
        raise ValueError("a missing figure has no estimate")
    return Estimate(float(fact.value), fact.ci95)


def without(unit: Unit, needed: Sequence[tuple[str, Fact]]) -> Fact | None:
    """The absence that a derived figure inherits from the first part that is missing; None when all are there."""
    for name, fact in needed:
        if fact.missing is not None:
            return absent(unit, fact.missing, f"needs {name}: {fact.detail}")
    return None
