"""Rules Q03 to Q05 for sides that no probe has judged: what the machine did meanwhile holds for every shape."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kdaprof.analysis.ab.evidence import Evidence, SideEvidence
from kdaprof.analysis.guards.machine import clock_limits, loaded_host, shared_card
from kdaprof.runs.conditions import Conditions
from kdaprof.runs.facts import Reason


@dataclass(frozen=True, slots=True)
class _Watched:
    conditions: Conditions


def under_conditions(evidence: Evidence, conditions: Conditions) -> Evidence:
    """`evidence` with what the conditions refuse: a shared card and a limited clock keep its times out of a ratio.

    A loaded host is noted: interleaved rounds share it, and their interval says what is left.
    """
    watched = _Watched(conditions)
    barring = [("Q03", shared_card(watched)), ("Q04", clock_limits(watched))]
    refused = tuple(Reason(rule, text) for rule, text in barring if text is not None)
    load = loaded_host(watched)
    noted = () if load is None else (Reason("Q05", load),)

    def judged(side: SideEvidence) -> SideEvidence:
        return replace(side, refused=(*side.refused, *refused), noted=(*side.noted, *noted))

    shapes = tuple(replace(row, base=judged(row.base), cand=judged(row.cand)) for row in evidence.shapes)
    return replace(evidence, shapes=shapes)
