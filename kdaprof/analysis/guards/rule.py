"""What a rule is: a refusal that a figure can earn, with its threshold and the story it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kdaprof.analysis.view import CellView
from kdaprof.runs.facts import Fact, Reason


class Rule(Protocol):
    """One reason for which a figure may not be quoted."""

    @property
    def id(self) -> str:
        """`Q02`."""
        ...

    @property
    def title(self) -> str:
        """Two or three words, as tables show them."""
        ...

    @property
    def explanation(self) -> str:
        """What the rule refuses and which withdrawn figure it comes from, in a sentence or two."""
        ...

    @property
    def anchor(self) -> str:
        """Anchor of the rule's section in the documentation."""
        ...

    @property
    def thresholds(self) -> Mapping[str, float]:
        """Every number that decides, by name."""
        ...

    def check(self, view: CellView, name: str, fact: Fact) -> Reason | None:
        """Why the figure `name` of this cell may not be quoted; None when this rule has nothing against it."""
        ...


Judge = Callable[[CellView, str, Fact], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRule:
    """A rule over the figures it names: `judge` gives the sentence that refuses one, with its numbers, or None.

    A figure that is missing is never refused: it has its own reason already.
    """

    id: str
    title: str
    explanation: str
    touches: frozenset[str]
    judge: Judge
    thresholds: Mapping[str, float] = field(default_factory=dict)

    @property
    def anchor(self) -> str:
        """`q02`."""
        return self.id.lower()

    def check(self, view: CellView, name: str, fact: Fact) -> Reason | None:
        """The refusal of figure `name`, or None."""
        if name not in self.touches or fact.value is None:
            return None
        text = self.judge(view, name, fact)
        return None if text is None else Reason(rule=self.id, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRule:
    """A rule whose figures do not exist yet; `arrives` names the verb that brings them. It refuses nothing."""

    id: str
    title: str
    explanation: str
    arrives: str
    thresholds: Mapping[str, float] = field(default_factory=dict)

    @property
    def anchor(self) -> str:
        """`q12`."""
        return self.id.lower()
