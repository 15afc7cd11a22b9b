"""Every figure before every rule, then derived figures once more before what their sources were found to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kdaprof.analysis.guards.derived import inherited
from kdaprof.analysis.guards.registry import RULES
from kdaprof.analysis.guards.rule import Rule
from kdaprof.analysis.view import CellView
from kdaprof.runs.facts import Fact, Reason, fact_id

# A ratio of such figures compares things that did not run, are wrong, or are no times at all.
NEVER_IN_A_RATIO = frozenset({"Q06", "Q07", "Q08", "Q09", "Q15", "Q16"})
# What falls on both sides of an interleaved ratio alike, or shows in its interval, which then decides.
# Q13 adds nothing of its own here: it says only that a source has one of the others.
INTERLEAVED_MAY = frozenset({"Q02", "Q05", "Q13"})


def apply_rules(view: CellView, elsewhere: Mapping[str, Fact] | None = None) -> dict[str, Fact]:
    """The cell's figures with `quotable` and `reasons`, in their order.

    `elsewhere` holds judged figures of other cells by fact id, for figures whose sources stand there; `judge_run`
    brings them along by itself.
    """
    return _settle((view,), elsewhere or {}, whole_run=False)[view.cell.id]


def judge_run(views: Iterable[CellView]) -> dict[str, dict[str, Fact]]:
    """Judged figures by cell id, for all cells of one run: a figure may have sources in another cell."""
    return _settle(tuple(views), {}, whole_run=True)


def may_enter_ratio(fact: Fact, *, interleaved: bool = True) -> bool:
    """Whether a ratio may be made from this figure.

    Never from one that is missing or refused by Q06 to Q09, Q15 or Q16. One refused by Q02 or Q05 alone may enter a
    ratio of interleaved samples, whose own interval decides. Any other refusal keeps it out.
    """
    if fact.value is None:
        return False
    rules = {reason.rule for reason in fact.reasons}
    if rules & NEVER_IN_A_RATIO:
        return False
    return fact.quotable or (interleaved and bool(rules) and rules <= INTERLEAVED_MAY)


def direct_reasons(view: CellView, name: str, fact: Fact, rules: Iterable[Rule] = RULES) -> tuple[Reason, ...]:
    """What the rules have against the figure itself, sources apart."""
    found = (rule.check(view, name, fact) for rule in rules)
    return tuple(reason for reason in found if reason is not None)


def _settle(
    views: tuple[CellView, ...], elsewhere: Mapping[str, Fact], *, whole_run: bool
) -> dict[str, dict[str, Fact]]:
    known = {**elsewhere, **{place: fact for view in views for place, fact in _ceilings(view).items()}}
    places: list[tuple[str, str, str]] = []
    for view in views:
        for name, fact in view.facts.items():
            place = fact_id(view.run.run, view.cell.id, name)
            known[place] = _add(fact, direct_reasons(view, name, fact))
            places.append((place, view.cell.id, name))
    settled: set[str] = set()
    for place, _, _ in places:
        _inherit(place, known, settled, whole_run)
    judged: dict[str, dict[str, Fact]] = {view.cell.id: {} for view in views}
    for place, cell, name in places:
        judged[cell][name] = known[place]
    return judged


def _ceilings(view: CellView) -> dict[str, Fact]:
    """The run's ceilings as figures, by the ids under which floors name them as sources."""
    run = view.run
    return {
        f"{run.run}/ceilings/{c.name}": Fact(value=c.value, unit=c.unit, n=c.n, provenance=c.provenance)
        for c in run.ceilings
    }


def _inherit(place: str, known: dict[str, Fact], settled: set[str], whole_run: bool) -> None:
    """Give a derived figure its sources' refusals, sources first. A cycle ends at the figure it comes back to."""
    if place in settled or place not in known:
        return
    settled.add(place)
    fact = known[place]
    for source in fact.sources:
        _inherit(source, known, settled, whole_run)
    if fact.value is not None:
        known[place] = _add(fact, inherited(fact, known, whole_run=whole_run))


def _add(fact: Fact, reasons: Iterable[Reason]) -> Fact:
    """Refuse for reasons whose rule has not spoken yet: applying the rules twice changes nothing."""
    spoken = {reason.rule for reason in fact.reasons}
    return fact.refuse(*(reason for reason in reasons if reason.rule not in spoken))
