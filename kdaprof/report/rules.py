"""The rules that refuse figures, as a reader needs them: short name and what trips them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kdaprof.report.labels import label
from kdaprof.report.pairs import Cell, Naming

RULES: dict[str, tuple[str, str]] = {
    "Q01": ("not warm", "samples from before the steady segment"),
    "Q02": ("spread", "half-width of the interval over 10 % of a wall or host median, over 3 % of busy"),
    "Q03": ("card shared", "another process on the card before, during or after"),
    "Q04": ("clocks moved", "SM clock spread over 5 % while busy, or a throttle reason"),
    "Q05": ("host loaded", "load above half the cores before the start, or steal above 5 %"),
    "Q06": ("path not proven", "the three witnesses do not confirm the path"),
    "Q07": ("backward never ran", "a training figure without backward kernels"),
    "Q08": ("not a device time", "the time of a launch, a CPU or an interpreter, not of a GPU"),
    "Q09": ("wrong output", "outputs or gradients not finite, or away from the reference"),
    "Q10": ("faster than its floor", "bytes, operations, ceiling or cache policy must be wrong"),
    "Q11": ("declared ceiling", "a share of a data sheet's rate, not of a measured one"),
    "Q12": ("too few points", "a fixed cost fitted to fewer than four points"),
    "Q13": ("derived loosely", "a source is refused, no propagated interval, or parts from different runs"),
    "Q14": ("allocator moved", "the pool grew while samples were taken"),
    "Q15": ("self-comparison", "the peer ran the very path it is compared with"),
    "Q16": ("below resolution", "shorter than 20 ticks of the clock"),
}


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
                group = groups.setdefault((reason.rule, reason.text), {})
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
