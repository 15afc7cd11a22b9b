"""The history as series: one figure of one cell on one machine over time, and where its level changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise

import numpy as np

from kdaprof.analysis.stats import median
from kdaprof.analysis.warmup import change_points
from kdaprof.analysis.withdrawn import struck
from kdaprof.runs.facts import Fact
from kdaprof.runs.history_rows import Entry, Stamp
from kdaprof.runs.retractions import Fall

POINTS_MIN = 4
"""Fewer figures establish no change (as Q12: a line through two readings is no measurement)."""
LEAST_CHANGE = 0.02
"""Levels closer than this are one level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which figures to show. `cell` is a pattern (`*/fused/*`), `machine` and `commit` a part of the name."""

    facts: tuple[str, ...] = ("wall_ns",)
    cell: str | None = None
    machine: str | None = None
    commit: str | None = None
    quotable: bool = False

    def admits(self, entry: Entry, fact: Fact) -> bool:
        """Whether a figure, as it stands now, is asked for."""
        stamp = entry.stamp
        return (
            entry.name in self.facts
            and fact.value is not None
            and (fact.quotable or not self.quotable)
            and (self.cell is None or fnmatchcase(entry.cell, self.cell))
            and (self.machine is None or self.machine.lower() in stamp.machine.lower())
            and (self.commit is None or (stamp.commit or "").startswith(self.commit))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run's figure, as it stands now."""

    stamp: Stamp
    fact: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A new level: the first run of it, and the medians before and after in base units."""

    run: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """After / before."""
        return self.after / self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One figure of one cell on one machine, oldest first; `why` says why no change was looked for."""

    machine: str
    cell: str
    name: str
    points: tuple[Point, ...]
    changes: tuple[Change, ...] = ()
    why: str | None = None


def series_of(entries: Iterable[Entry], falls: Mapping[str, Fall], wanted: Wanted) -> tuple[Series, ...]:
    """The series asked for, in the order in which their cells first appear. Entries come oldest first."""
    groups: dict[tuple[str, str, str], list[Point]] = {}
    for entry in entries:
        fact = struck(entry.fact, falls.get(entry.id))
        if wanted.admits(entry, fact):
            place = (entry.stamp.machine, entry.cell, entry.name)
            groups.setdefault(place, []).append(Point(stamp=entry.stamp, fact=fact))
    return tuple(_series(*place, tuple(points)) for place, points in groups.items())


def _series(machine: str, cell: str, name: str, points: tuple[Point, ...]) -> Series:
    # A figure that may not be quoted establishes no change either.
    fit = [point for point in points if point.fact.quotable and (point.fact.value or 0) > 0]
    why = None
    if len(fit) < POINTS_MIN:
        why = f"{len(fit)} quotable figures; a change of level needs {POINTS_MIN}"
    changes = _changes(fit) if why is None else ()
    return Series(machine=machine, cell=cell, name=name, points=points, changes=changes, why=why)


def _changes(points: Sequence[Point]) -> tuple[Change, ...]:
    values = [float(point.fact.value or 0) for point in points]
    ends = change_points(np.log(np.array(values)))
    levels = [(start, median(values[start:end])) for start, end in pairwise([0, *ends])]
    found: list[Change] = []
    before = levels[0][1]
    for start, level in levels[1:]:
        if abs(math.log(level / before)) >= math.log1p(LEAST_CHANGE):
            found.append(Change(run=points[start].stamp.run, before=before, after=level))
            before = level
    return tuple(found)
