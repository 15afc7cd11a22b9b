"""A training step by its parts: phases that add up to it, what remains, and the op's own part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kdaprof.analysis.figure import derived, estimate_of, without
from kdaprof.analysis.propagate import Term, difference, propagate, ratio
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import Fact, absent, fact_id
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import CellResult, RunResults

SUM_MAX = 0.01
"""Phases whose walls add up to the step within this share need no explanation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """One part of a step. `kind`: `phase`, `op` (KDA's calls inside a phase), `rest`, or `step` itself."""

    name: str
    kind: str
    calls: int | None
    key: CellKey | None
    facts: Mapping[str, Fact]
    share: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """One eager step: its rows, how its phases add up, and why when they do not."""

    whole: CellKey
    rows: tuple[PartRow, ...]
    added_up: Fact
    why: str | None


def attributions(record: RunRecord, results: RunResults) -> tuple[Attribution, ...]:
    """Every eager step of the run whose phases were measured, in the order of the run."""
    known = {cell.id: cell for cell in results.cells}
    made = []
    for cell in record.cells:
        if not _is_step(cell.key) or cell.key.mode != "eager" or cell.status != "ok" or cell.id not in known:
            continue
        parts = [c.key for c in record.cells if c.key != cell.key and c.key.sibling(phase="step") == cell.key]
        parts = [key for key in parts if key.id in known and key.mode == "eager"]
        if any("." not in key.phase for key in parts) and not _in_loop(record, cell.key):
            on_gpu = cell.observed is None or cell.observed.device != "cpu"
            made.append(_attribution(record.run, cell.key, parts, known, on_gpu=on_gpu))
    return tuple(made)


def _is_step(key: CellKey) -> bool:
    return key.phase == "step" and key.workload in ("step", "target")


def _in_loop(record: RunRecord, key: CellKey) -> bool:
    return any(c.key == key and c.observed is not None and c.observed.borders == "loop" for c in record.cells)


def _attribution(
    run: str, whole: CellKey, parts: Sequence[CellKey], known: Mapping[str, CellResult], *, on_gpu: bool
) -> Attribution:
    step = known[whole.id].facts
    phases = [key for key in parts if "." not in key.phase]
    rows = []
    for key in phases:
        facts = known[key.id].facts
        rows.append(_row(run, key, "phase", 1, facts, _share(run, key, "wall_ns", facts, whole, step)))
        for line in (k for k in parts if k.phase.startswith(f"{key.phase}.")):
            of_op = known[line.id].facts
            # The op's calls are not synchronised: of a step bound by the host its host time is its share.
            share = _share(run, line, "host_ns", of_op, whole, step)
            rows.append(_row(run, line, "op", iterations_of(whole), of_op, share))
    walls = [(fact_id(run, key.id, "wall_ns"), known[key.id].facts["wall_ns"]) for key in phases]
    total = sum_of(walls)
    rest = _rest(run, whole, step["wall_ns"], total, walls)
    share_of_rest = _ratio_of(rest, step["wall_ns"], (*rest.sources,))
    rows.append(
        PartRow(name="remainder", kind="rest", calls=None, key=None, facts={"wall_ns": rest}, share=share_of_rest)
    )
    one = Fact(value=1.0, unit="fraction", provenance="derived", quotable=step["wall_ns"].quotable)
    rows.append(_row(run, whole, "step", 1, step, one))
    why = _why(step["wall_ns"], total, [known[key.id].facts for key in phases] if on_gpu else ())
    return Attribution(whole=whole, rows=tuple(rows), added_up=total, why=why)


def _row(run: str, key: CellKey, kind: str, calls: int | None, facts: Mapping[str, Fact], share: Fact) -> PartRow:
    return PartRow(name=key.phase, kind=kind, calls=calls, key=key, facts=facts, share=share)


def iterations_of(key: CellKey) -> int | None:
    """How often a step runs its looped block; None for a step without such an axis."""
    return dict(key.shape).get("iters")


def _share(
    run: str, key: CellKey, name: str, facts: Mapping[str, Fact], whole: CellKey, step: Mapping[str, Fact]
) -> Fact:
    sources = (fact_id(run, key.id, name), fact_id(run, whole.id, "wall_ns"))
    return _ratio_of(facts[name], step["wall_ns"], sources)


def _ratio_of(part: Fact, wall: Fact, sources: tuple[str, ...]) -> Fact:
    gone = without("fraction", (("the part", part), ("wall_ns", wall)))
    if gone is not None or not wall.value:
        return gone or absent("fraction", "not-applicable", "the wall is 0")
    made = derived("fraction", ratio(estimate_of(part), estimate_of(wall)), (part, wall), sources)
    return refused_like(made, (part, wall))


def sum_of(parts: Sequence[tuple[str, Fact]]) -> Fact:
    """The sum of times (fact id, fact) in ns, with its interval; absent with the reason when one of them is."""
    gone = without("ns", parts)
    if gone is not None:
        return gone
    estimates = [estimate_of(fact) for _, fact in parts]
    total = propagate(sum(e.value for e in estimates), [Term(e, 1.0) for e in estimates])
    facts = [fact for _, fact in parts]
    return refused_like(derived("ns", total, facts, [source for source, _ in parts]), facts)


def _rest(run: str, whole: CellKey, wall: Fact, total: Fact, walls: Sequence[tuple[str, Fact]]) -> Fact:
    gone = without("ns", (("wall_ns", wall), ("the phases' sum", total)))
    if gone is not None:
        return gone
    left = difference(estimate_of(wall), estimate_of(total))
    sources = (fact_id(run, whole.id, "wall_ns"), *(source for source, _ in walls))
    return refused_like(derived("ns", left, (wall, total), sources), (wall, total))


def refused_like(fact: Fact, parts: Sequence[Fact]) -> Fact:
    """A figure is refused for whatever refuses one of its parts."""
    reasons = {reason.rule: reason for part in parts for reason in part.reasons}
    return fact.refuse(*reasons.values())


def _why(wall: Fact, total: Fact, phases: Sequence[Mapping[str, Fact]]) -> str | None:
    """Why the phases do not add up to the step within `SUM_MAX`; None when they do. No `phases`: nothing runs ahead.

    What synchronising at the borders can add is what the host waits there for the GPU, behind each phase's last call.
    """
    if wall.value is None or total.value is None or not wall.value:
        return "not every phase was measured"
    more = float(total.value) - float(wall.value)
    if abs(more) <= SUM_MAX * wall.value:
        return None
    if 0 < more <= sum(_waited(facts) for facts in phases):
        return (
            "phases are synchronised at their borders, the step is not: there the host runs ahead, and the launches of "
            "one phase hide behind the GPU's work of the one before"
        )
    return "steps with and without borders were timed apart, and the host's speed moved between them"


def _waited(facts: Mapping[str, Fact]) -> float:
    wall, host = facts["wall_ns"].value, facts["host_ns"].value
    return max(float(wall) - float(host), 0.0) if wall is not None and host is not None else 0.0
