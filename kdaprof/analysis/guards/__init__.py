"""When a number may be quoted: the rules Q01 to Q16, each from a figure that had to be withdrawn."""

from __future__ import annotations

from kdaprof.analysis.guards.apply import apply_rules, direct_reasons, judge_run, may_enter_ratio
from kdaprof.analysis.guards.registry import PENDING, RULES, rule_of
from kdaprof.analysis.guards.rule import PendingRule, Rule

__all__ = [
    "PENDING",
    "RULES",
    "PendingRule",
    "Rule",
    "apply_rules",
    "direct_reasons",
    "judge_run",
    "may_enter_ratio",
    "rule_of",
]
