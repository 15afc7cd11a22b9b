"""Q10 and Q11: a floor that the kernel beat, and a floor that nobody measured."""

from __future__ import annotations

from kdaprof.analysis.guards.families import FLOOR
from kdaprof.analysis.guards.rule import GuardRule
from kdaprof.analysis.view import CellView
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_fraction, format_ns

FLOOR_SHARE_MIN = 0.95


def exceeds_l2(view: CellView) -> bool:
    """Whether the bytes that the call touches before it meets the same input again are more than L2 holds."""
    seen = view.cell.observed
    if seen is None or seen.work is None or seen.l2_bytes is None:
        return False
    sets = seen.input_sets if seen.cache == "rotate" else 1
    return seen.work.bytes_compulsory * sets > seen.l2_bytes


def faster_than_floor(view: CellView) -> tuple[float, float] | None:
    """(busy, floor) in ns when busy is below what the floor allows, with data larger than L2."""
    busy, floor = view.facts.get("gpu_busy_ns"), view.facts.get("floor_ns")
    if busy is None or floor is None or busy.value is None or floor.value is None or not exceeds_l2(view):
        return None
    return (busy.value, floor.value) if busy.value < FLOOR_SHARE_MIN * floor.value else None


def _beaten(view: CellView, name: str, fact: Fact) -> str | None:
    pair = faster_than_floor(view)
    if pair is None:
        return None
    share = format_fraction(pair[0] / pair[1])
    return (
        f"busy {format_ns(pair[0])} is {share} of the floor {format_ns(pair[1])}: bytes, FLOPs, a ceiling or the "
        "cache policy is wrong"
    )


def _declared(view: CellView, name: str, fact: Fact) -> str | None:
    seen = view.cell.observed
    used = {"copy", seen.work.rate} if seen is not None and seen.work is not None else set()
    declared = sorted(c.name for c in view.run.ceilings if c.name in used and c.provenance == "declared")
    if declared:
        return f"rests on a ceiling that was declared, not measured on this card: {', '.join(declared)}"
    return "declared, not measured on this card" if fact.provenance == "declared" else None


FASTER_THAN_FLOOR = GuardRule(
    id="Q10",
    title="faster than floor",
    explanation=(
        "A kernel faster than its floor says that the floor is wrong. A report's best run beat the floor of its own "
        "card's true bandwidth."
    ),
    touches=FLOOR,
    judge=_beaten,
    thresholds={"floor_share_min": FLOOR_SHARE_MIN},
)
DECLARED_CEILING = GuardRule(
    id="Q11",
    title="declared ceiling",
    explanation=(
        "A share of a roofline that comes from a data sheet. “170 SMs, 1792 GB/s” were another card's figures: the "
        "one measured on has 36 SMs and 448 GB/s."
    ),
    touches=FLOOR,
    judge=_declared,
)
