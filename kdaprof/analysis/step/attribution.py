"""A training step by its parts: phases that add up to it, what remains, the op's own part, and what each could give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kdaprof.analysis.figure import derived, estimate_of, without
from kdaprof.analysis.propagate import Estimate, difference, propagate, ratio
from kdaprof.analysis.propagate import Term as _Term
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import Fact, absent, fact_id
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import CellResult, RunResults

SUM_MAX = 0.01
"""Phases whose walls add up to the step within this share need no explanation."""
LOOPED = ("fwd", "teacher", "bwd")
"""Phases that run the looped block; what stands outside the loop in them is a few operators."""
HALF = "half the iterations"
RUNS_AHEAD = 0.9
"""A step that is issued in less than this share of its wall lets the host run ahead of the GPU."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """If `name` were free, or done, the step would go from `now` to `then`. `measured`: it was done in this run."""

    name: str
    whole: CellKey
    measured: bool
    now: Fact
    then: Fact


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
            made.append(_attribution(record.run, cell.key, parts, known))
    return tuple(made)


def _is_step(key: CellKey) -> bool:
    return key.phase == "step" and key.workload in ("step", "target")


def _in_loop(record: RunRecord, key: CellKey) -> bool:
    return any(c.key == key and c.observed is not None and c.observed.borders == "loop" for c in record.cells)


def _attribution(run: str, whole: CellKey, parts: Sequence[CellKey], known: Mapping[str, CellResult]) -> Attribution:
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
            rows.append(_row(run, line, "op", _iterations(whole), of_op, share))
    walls = [(fact_id(run, key.id, "wall_ns"), known[key.id].facts["wall_ns"]) for key in phases]
    total = _sum(walls)
    rest = _rest(run, whole, step["wall_ns"], total, walls)
    share_of_rest = _ratio_of(rest, step["wall_ns"], (*rest.sources,))
    rows.append(
        PartRow(name="remainder", kind="rest", calls=None, key=None, facts={"wall_ns": rest}, share=share_of_rest)
    )
    one = Fact(value=1.0, unit="fraction", provenance="derived", quotable=step["wall_ns"].quotable)
    rows.append(_row(run, whole, "step", 1, step, one))
    return Attribution(whole=whole, rows=tuple(rows), added_up=total, why=_why(step["wall_ns"], step["host_ns"], total))


def _row(run: str, key: CellKey, kind: str, calls: int | None, facts: Mapping[str, Fact], share: Fact) -> PartRow:
    return PartRow(name=key.phase, kind=kind, calls=calls, key=key, facts=facts, share=share)


def _iterations(key: CellKey) -> int | None:
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
    return _refused_like(made, (part, wall))


def _sum(parts: Sequence[tuple[str, Fact]]) -> Fact:
    gone = without("ns", parts)
    if gone is not None:
        return gone
    estimates = [estimate_of(fact) for _, fact in parts]
    total = propagate(sum(e.value for e in estimates), [_Term(e, 1.0) for e in estimates])
    facts = [fact for _, fact in parts]
    return _refused_like(derived("ns", total, facts, [source for source, _ in parts]), facts)


def _rest(run: str, whole: CellKey, wall: Fact, total: Fact, walls: Sequence[tuple[str, Fact]]) -> Fact:
    gone = without("ns", (("wall_ns", wall), ("the phases' sum", total)))
    if gone is not None:
        return gone
    left = difference(estimate_of(wall), estimate_of(total))
    sources = (fact_id(run, whole.id, "wall_ns"), *(source for source, _ in walls))
    return _refused_like(derived("ns", left, (wall, total), sources), (wall, total))


def _refused_like(fact: Fact, parts: Sequence[Fact]) -> Fact:
    """A figure is refused for whatever refuses one of its parts."""
    reasons = {reason.rule: reason for part in parts for reason in part.reasons}
    return fact.refuse(*reasons.values())


def _why(wall: Fact, host: Fact, total: Fact) -> str | None:
    """Why the phases do not add up to the step within `SUM_MAX`; None when they do."""
    if wall.value is None or total.value is None or not wall.value:
        return "not every phase was measured"
    off = float(total.value) / float(wall.value) - 1
    if abs(off) <= SUM_MAX:
        return None
    if off > 0 and host.value is not None and host.value < RUNS_AHEAD * wall.value:
        return (
            "phases are synchronised at their borders, the step is not: there the host runs ahead, and the launches of "
            "one phase hide behind the GPU's work of the one before"
        )
    return "steps with and without borders were timed apart, and the host's speed moved between them"


# ---------------------------------------------------------------- levers


def levers(record: RunRecord, results: RunResults) -> tuple[Lever, ...]:
    """What the step would take without each part, and what it took where that was tried; the largest gain first.

    Nothing is promised from a refused figure: a lever whose ends may not both be quoted is left out.
    """
    found: list[Lever] = []
    known = {cell.id: cell.facts for cell in results.cells}
    ok = {cell.key: known[cell.id] for cell in record.cells if cell.status == "ok" and cell.id in known}
    for attribution in attributions(record, results):
        whole = attribution.whole
        step, wall = ok[whole], ok[whole]["wall_ns"]
        found += [_without_part(record.run, whole, wall, row) for row in attribution.rows if row.kind == "phase"]
        found += _without_op(record.run, whole, step, [row for row in attribution.rows if row.kind == "op"])
        busy = step["gpu_busy_ns"]
        found.append(Lever(name="the host (GPU work alone)", whole=whole, measured=False, now=wall, then=busy))
        for key, facts in ok.items():
            if key.phase == "step" and key != whole:
                name = _tried(whole, key)
                if name is not None:
                    found.append(Lever(name=name, whole=whole, measured=True, now=wall, then=facts["wall_ns"]))
        if not any(lever.whole == whole and lever.name == HALF for lever in found):
            found += _half_the_loop(record.run, whole, wall, attribution.rows)
    fit = [lever for lever in found if lever.now.quotable and lever.then.quotable and _gain(lever) > 0]
    return tuple(sorted(fit, key=lambda lever: (lever.whole.id, -_gain(lever))))


def _gain(lever: Lever) -> float:
    return 0.0 if lever.now.value is None or lever.then.value is None else float(lever.now.value - lever.then.value)


def _without_part(run: str, whole: CellKey, wall: Fact, row: PartRow) -> Lever:
    part = row.facts["wall_ns"]
    return Lever(name=row.name, whole=whole, measured=False, now=wall, then=_minus(run, whole, wall, row, part))


def _without_op(run: str, whole: CellKey, step: Mapping[str, Fact], rows: Sequence[PartRow]) -> list[Lever]:
    """KDA: its host time where the host bounds the step, its GPU time where the GPU does; never the sum of both."""
    bound = step["host_bound"]
    if bound.value is None or not bound.quotable or not rows:
        return []
    name = "host_ns" if bound.value >= 0.15 else "gpu_busy_ns"
    pairs = [(fact_id(run, row.key.id, name), row.facts[name]) for row in rows if row.key is not None]
    total, wall = _sum(pairs), step["wall_ns"]
    if total.value is None:
        return []
    left = difference(estimate_of(wall), estimate_of(total))
    sources = (fact_id(run, whole.id, "wall_ns"), *(source for source, _ in pairs))
    then = _refused_like(derived("ns", left, (wall, total), sources), (wall, total))
    label = f"kda, by its {'host' if name == 'host_ns' else 'GPU'} time"
    return [Lever(name=label, whole=whole, measured=False, now=wall, then=then)]


def _half_the_loop(run: str, whole: CellKey, wall: Fact, rows: Sequence[PartRow]) -> list[Lever]:
    """Half of what the looped phases take: at most what half the iterations give, where nobody has measured it."""
    walls = [
        (fact_id(run, row.key.id, "wall_ns"), row.facts["wall_ns"])
        for row in rows
        if row.kind == "phase" and row.name in LOOPED and row.key is not None
    ]
    total = _sum(walls)
    if (_iterations(whole) or 0) < 2 or len(walls) < len(LOOPED) or wall.value is None or total.value is None:
        return []
    loop = estimate_of(total)
    left = propagate(float(wall.value) - loop.value / 2, [_Term(estimate_of(wall), 1.0), _Term(loop, -0.5)])
    sources = (fact_id(run, whole.id, "wall_ns"), *(source for source, _ in walls))
    then = _refused_like(derived("ns", left, (wall, total), sources), (wall, total))
    return [Lever(name=f"{HALF}, at most", whole=whole, measured=False, now=wall, then=then)]


def _minus(run: str, whole: CellKey, wall: Fact, row: PartRow, part: Fact) -> Fact:
    gone = without("ns", (("wall_ns", wall), (row.name, part)))
    if gone is not None or row.key is None:
        return gone or absent("ns", "not-applicable", "no such part")
    left: Estimate = difference(estimate_of(wall), estimate_of(part))
    sources = (fact_id(run, whole.id, "wall_ns"), fact_id(run, row.key.id, "wall_ns"))
    return _refused_like(derived("ns", left, (wall, part), sources), (wall, part))


def _tried(whole: CellKey, other: CellKey) -> str | None:
    """What was done to the step to get another cell of the run; None when more than one thing differs."""
    if other.sibling(mode="eager") == whole:
        return {"graph": "CUDA Graph of the whole step"}.get(other.mode, other.mode)
    if other.sibling(path=whole.path) == whole:
        return "kda replaced by a copy" if other.path == "copy" else f"path {other.path}"
    one, two = dict(whole.shape), dict(other.shape)
    changed = [axis for axis in one if one[axis] != two.get(axis)]
    alike = (whole.path, whole.context, whole.mode, whole.dtype) == (other.path, other.context, other.mode, other.dtype)
    if alike and changed == ["iters"] and 2 * two["iters"] == one["iters"]:
        return HALF
    return None
