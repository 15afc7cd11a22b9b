"""Q13: a figure made from others is no better than they are, and needs an interval that comes from theirs."""

from __future__ import annotations

from collections.abc import Mapping

from kdaprof.analysis.guards.families import COUNTED, ERRORS, FLOOR, IDLE_CLASSES
from kdaprof.analysis.view import CellView
from kdaprof.runs.facts import Fact, Reason

ID = "Q13"
# Bounds by calculation, counts and errors: nothing in them was sampled, so there is nothing to propagate.
_EXACT = (FLOOR - {"floor_share"}) | COUNTED | ERRORS


def has_interval(name: str, fact: Fact) -> bool:
    """A propagated interval; for a class of idle, the range between its two kinds of recording."""
    if fact.ci95 is not None or name in _EXACT:
        return True
    return name in IDLE_CLASSES and fact.min is not None and fact.max is not None


def inherited(fact: Fact, known: Mapping[str, Fact], *, whole_run: bool) -> tuple[Reason, ...]:
    """Why a derived figure falls with its sources: their refusals, each once, and Q13 that says through which.

    `known` holds judged figures by fact id: all of the run's when `whole_run`, and then a source that is not among
    them is a refusal too; otherwise it is left to whoever sees it.
    """
    if fact.provenance != "derived":
        return ()
    passed_on: dict[str, Reason] = {}
    through = []
    for source in fact.sources:
        judged, name = known.get(source), source.rsplit("/", 1)[-1]
        if judged is None and whole_run:
            through.append(f"{name} (not in this run)")
        if judged is None or judged.quotable:
            continue
        # The rule at the root says more than that its source, too, had sources.
        rules = [r.rule for r in judged.reasons if r.rule != ID] or [r.rule for r in judged.reasons]
        through.append(f"{name} ({', '.join(rules) or judged.missing or 'not quotable'})")
        for reason in judged.reasons:
            if reason.rule != ID:
                text = reason.text if reason.text.startswith("through ") else f"through {name}: {reason.text}"
                passed_on.setdefault(reason.rule, Reason(rule=reason.rule, text=text))
    if not through:
        return ()
    return (*passed_on.values(), Reason(rule=ID, text=f"made from figures that are refused: {', '.join(through)}"))


class DerivedLoosely:
    """The rule object: intervals and runs are seen here; refused sources are passed on by `inherited`."""

    id = ID
    title = "derived loosely"
    explanation = (
        "A difference, sum or share without an interval of its own, from different runs, or from a figure that is "
        "refused. “A perfect kernel takes the step from 1,810 to 365 ms” fell with both of its ends."
    )
    anchor = "q13"
    thresholds: Mapping[str, float] = {}

    def check(self, view: CellView, name: str, fact: Fact) -> Reason | None:
        """Refuse a derived figure without an interval, or with a source outside this run."""
        if fact.value is None or fact.provenance != "derived":
            return None
        foreign = [source for source in fact.sources if not source.startswith(f"{view.run.run}/")]
        if foreign:
            return Reason(rule=ID, text=f"made from another run's figure: {foreign[0]}")
        if not has_interval(name, fact):
            return Reason(rule=ID, text="derived without a propagated interval")
        return None


DERIVED_LOOSELY = DerivedLoosely()
