"""What one step leaves behind: its phases on the host's clock and, when the device has passed them, on its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kdaprof.instruments.allocator import AllocatorDelta
from kdaprof.instruments.steps.borders import Borders, Mark


@dataclass(slots=True)
class OpenPhase:
    """One entry of a phase, while its marks are on their way. `nested` phases lie inside another one."""

    name: str
    start_ns: int
    first: Mark | None
    nested: bool
    token: int
    end_ns: int = 0
    last: Mark | None = None


@dataclass(slots=True)
class OpenStep:
    """One step whose marks the device may not have passed yet. `marks` are all it holds, each once, in order."""

    number: int
    start_ns: int
    first: Mark | None
    token: int
    kind: str
    tokens: int | None
    marks: list[Mark] = field(default_factory=list)
    phases: list[OpenPhase] = field(default_factory=list)
    end_ns: int = 0
    last: Mark | None = None
    memory: AllocatorDelta | None = None
    reserved_bytes: int | None = None


class PhaseSpan(NamedTuple):
    """A phase of one step, its `calls` entries summed. `span_ns` is device time, idle included; None where unknown.

    A tuple: some are made in every step of a running loop, and a frozen dataclass takes four times as long.
    """

    name: str
    t_ns: int
    wall_ns: int
    span_ns: int | None
    calls: int
    nested: bool


@dataclass(frozen=True, slots=True)
class Border:
    """One entry of a phase on the host's clock."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class StepSpans:
    """A finished step. Phases that are not nested, and `other`, add up to the step, on both clocks.

    `kind` says how it was watched: `unprofiled`, or the kind of a profiled window. `entries` are the host borders of
    each phase entry, kept for profiled steps alone.
    """

    number: int
    kind: str
    t_ns: int
    wall_ns: int
    span_ns: int | None
    tokens: int | None
    phases: tuple[PhaseSpan, ...]
    memory: AllocatorDelta | None
    reserved_bytes: int | None
    entries: tuple[Border, ...] = ()

    @property
    def other_ns(self) -> int:
        """Host time outside all phases."""
        return self.wall_ns - sum(phase.wall_ns for phase in self.phases if not phase.nested)

    @property
    def other_span_ns(self) -> int | None:
        """Device time outside all phases; None where any part is unknown."""
        parts = [phase.span_ns for phase in self.phases if not phase.nested]
        if self.span_ns is None or any(part is None for part in parts):
            return None
        return self.span_ns - sum(part for part in parts if part is not None)


def settle(step: OpenStep, borders: Borders) -> StepSpans:
    """Read the marks of a step that the device has passed, and give them back.

    Every mark is placed by its distance from the step's first: so the parts add up to the whole to the nanosecond,
    whatever the resolution.
    """
    places: dict[int, int | None] = {}
    first = step.first
    if first is not None:
        for mark in step.marks:
            places[id(mark)] = 0 if mark is first else borders.between_ns(first, mark)
    for mark in step.marks:
        borders.free(mark)
    at = places.get
    phases: dict[str, PhaseSpan] = {}
    for entry in step.phases:
        begin, end = at(id(entry.first)), at(id(entry.last))
        span_ns = None if begin is None or end is None else end - begin
        one = PhaseSpan(entry.name, entry.start_ns, entry.end_ns - entry.start_ns, span_ns, 1, entry.nested)
        known = phases.get(entry.name)
        phases[entry.name] = one if known is None else _summed(known, one)
    begin, end = at(id(first)), at(id(step.last))
    profiled = step.kind != "unprofiled"
    return StepSpans(
        number=step.number,
        kind=step.kind,
        t_ns=step.start_ns,
        wall_ns=step.end_ns - step.start_ns,
        span_ns=None if begin is None or end is None else end - begin,
        tokens=step.tokens,
        phases=tuple(phases.values()),
        memory=step.memory,
        reserved_bytes=step.reserved_bytes,
        entries=tuple(Border(p.name, p.start_ns, p.end_ns) for p in step.phases) if profiled else (),
    )


def _summed(before: PhaseSpan, one: PhaseSpan) -> PhaseSpan:
    """A phase that was entered again: times add up, and what is unknown of one entry is unknown of all."""
    unknown = before.span_ns is None or one.span_ns is None
    span_ns = None if unknown else (before.span_ns or 0) + (one.span_ns or 0)
    return before._replace(wall_ns=before.wall_ns + one.wall_ns, span_ns=span_ns, calls=before.calls + 1)
