"""All sixteen rules, in order. A new rule is one entry here, one file beside it, and two scenes in its tests."""

from __future__ import annotations

from kdaprof.analysis.guards.derived import DERIVED_LOOSELY
from kdaprof.analysis.guards.device import NOT_DEVICE_TIME
from kdaprof.analysis.guards.fit import TOO_FEW_POINTS
from kdaprof.analysis.guards.floor import DECLARED_CEILING, FASTER_THAN_FLOOR
from kdaprof.analysis.guards.machine import CARD_SHARED, CLOCKS_MOVED, HOST_LOADED
from kdaprof.analysis.guards.output import WRONG_OUTPUT
from kdaprof.analysis.guards.path import NO_BACKWARD, PATH_NOT_PROVEN
from kdaprof.analysis.guards.peer import SELF_COMPARISON
from kdaprof.analysis.guards.rule import PendingRule, Rule
from kdaprof.analysis.guards.spread import BELOW_RESOLUTION, SPREAD
from kdaprof.analysis.guards.warm import ALLOCATOR_MOVED, NOT_WARM

RULES: tuple[Rule, ...] = (
    NOT_WARM,
    SPREAD,
    CARD_SHARED,
    CLOCKS_MOVED,
    HOST_LOADED,
    PATH_NOT_PROVEN,
    NO_BACKWARD,
    NOT_DEVICE_TIME,
    WRONG_OUTPUT,
    FASTER_THAN_FLOOR,
    DECLARED_CEILING,
    TOO_FEW_POINTS,
    DERIVED_LOOSELY,
    ALLOCATOR_MOVED,
    SELF_COMPARISON,
    BELOW_RESOLUTION,
)
"""The live rules, in the order in which their reasons are given."""

PENDING: tuple[PendingRule, ...] = ()

RETRACTED = PendingRule(
    id="retracted",
    title="retracted",
    explanation=(
        "Somebody withdrew the figure, its cell or its run, or a figure that it was made from. “A perfect kernel takes "
        "the step from 1,810 to 365 ms” was withdrawn without replacement: both of its ends were readings of step 0."
    ),
    arrives="kdaprof retract",
)
"""Not found in the run: it stands in the store beside it, and no derivation can take it back."""

_ALL: tuple[Rule | PendingRule, ...] = (*RULES, *PENDING, RETRACTED)
_BY_ID = {rule.id: rule for rule in _ALL}


def rule_of(rule_id: str) -> Rule | PendingRule:
    """The rule of an id such as `Q02`, with title, explanation, anchor and thresholds; KeyError for an unknown one."""
    return _BY_ID[rule_id]
