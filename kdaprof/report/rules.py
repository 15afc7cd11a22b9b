"""The rules that refuse figures, as a reader needs them: short name and what trips them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kdaprof.analysis.guards.registry import rule_of
from kdaprof.report.labels import label
from kdaprof.report.named import named_values
from kdaprof.report.pairs import Cell, Naming


def rule_title(rule: str) -> str:
    """Two or three words: `spread`."""
    return rule_of(rule).title


def rule_explanation(rule: str) -> str:
    """What the rule refuses and where it comes from, with its thresholds."""
    found = rule_of(rule)
    limits = f" Limits: {named_values(found.thresholds)}." if found.thresholds else ""
    return f"{found.explanation}{limits}"


# A derived figure repeats the reason of its source: one sentence for both, with both named.
_INHERITED = re.compile(r"^(through \w+: )+")


@dataclass(frozen=True, slots=True)
class Refused:
    """One reason of one rule, and every figure it refuses: (cell name, figure names)."""

    rule: str
    text: str
    figures: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def count(self) -> int:
        """How many figures."""
        return sum(len(names) for _, names in self.figures)


def refused_figures(cells: Sequence[Cell], naming: Naming) -> tuple[Refused, ...]:
    """Reasons grouped: the same sentence of the same rule once, with all the figures it speaks of."""
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for cell in cells:
        for fact_name, fact in cell.result.facts.items():
            for reason in () if fact.quotable or fact.value is None else fact.reasons:
                group = groups.setdefault((reason.rule, _INHERITED.sub("", reason.text)), {})
                group.setdefault(naming.name(cell.key, mode=True), []).append(label(fact_name))
    return tuple(
        Refused(rule, text, tuple((cell, tuple(names)) for cell, names in figures.items()))
        for (rule, text), figures in sorted(groups.items(), key=lambda item: item[0][0])
    )


def short_list(items: Iterable[str], most: int = 6) -> str:
    """`a, b, c and 9 more`."""
    names = list(dict.fromkeys(items))
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
