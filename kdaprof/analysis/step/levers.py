"""What a step would take without each of its parts (derived), and what it took where that was tried (measured)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kdaprof.analysis.figure import derived, estimate_of, without
from kdaprof.analysis.propagate import Estimate, Term, difference, propagate
from kdaprof.analysis.step.attribution import PartRow, attributions, iterations_of, refused_like, sum_of
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import Fact, absent, fact_id
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import RunResults

LOOPED = ("fwd", "teacher", "bwd")
"""Phases that run the looped block; what stands outside the loop in them is a few operators."""
HALF = "half the iterations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """If `name` were free, or done, the step would go from `now` to `then`. `measured`: it was done in this run."""

    name: str
    whole: CellKey
    measured: bool
    now: Fact
    then: Fact


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
    total, wall = sum_of(pairs), step["wall_ns"]
    if total.value is None:
        return []
    left = difference(estimate_of(wall), estimate_of(total))
    sources = (fact_id(run, whole.id, "wall_ns"), *(source for source, _ in pairs))
    then = refused_like(derived("ns", left, (wall, total), sources), (wall, total))
    label = f"kda, by its {'host' if name == 'host_ns' else 'GPU'} time"
    return [Lever(name=label, whole=whole, measured=False, now=wall, then=then)]


def _half_the_loop(run: str, whole: CellKey, wall: Fact, rows: Sequence[PartRow]) -> list[Lever]:
    """Half of what the looped phases take: at most what half the iterations give, where nobody has measured it."""
    walls = [
        (fact_id(run, row.key.id, "wall_ns"), row.facts["wall_ns"])
        for row in rows
        if row.kind == "phase" and row.name in LOOPED and row.key is not None
    ]
    total = sum_of(walls)
    if (iterations_of(whole) or 0) < 2 or len(walls) < len(LOOPED) or wall.value is None or total.value is None:
        return []
    loop = estimate_of(total)
    left = propagate(float(wall.value) - loop.value / 2, [Term(estimate_of(wall), 1.0), Term(loop, -0.5)])
    sources = (fact_id(run, whole.id, "wall_ns"), *(source for source, _ in walls))
    then = refused_like(derived("ns", left, (wall, total), sources), (wall, total))
    return [Lever(name=f"{HALF}, at most", whole=whole, measured=False, now=wall, then=then)]


def _minus(run: str, whole: CellKey, wall: Fact, row: PartRow, part: Fact) -> Fact:
    gone = without("ns", (("wall_ns", wall), (row.name, part)))
    if gone is not None or row.key is None:
        return gone or absent("ns", "not-applicable", "no such part")
    left: Estimate = difference(estimate_of(wall), estimate_of(part))
    sources = (fact_id(run, whole.id, "wall_ns"), fact_id(run, row.key.id, "wall_ns"))
    return refused_like(derived("ns", left, (wall, part), sources), (wall, part))


def _tried(whole: CellKey, other: CellKey) -> str | None:
    """What was done to the step to get another cell of the run; None when more than one thing differs."""
    if other.sibling(mode="eager") == whole:
        return {"graph": "CUDA Graph of the whole step"}.get(other.mode, other.mode)
    if other.sibling(path=whole.path) == whole:
        return "kda replaced by a copy" if other.path == "copy" else f"path {other.path}"
    return HALF if is_half(other, whole) else None


def is_half(other: CellKey, whole: CellKey) -> bool:
    """Whether `other` is the step `whole` with half the iterations, and the same in everything else."""
    doubled = tuple((axis, 2 * size if axis == "iters" else size) for axis, size in other.shape)
    return doubled == whole.shape != other.shape and replace(other, shape=whole.shape) == whole


def halves_of(keys: Sequence[CellKey]) -> frozenset[CellKey]:
    """Which of a probe's steps are there for half of another one's iterations: those that were not cut into phases."""
    cut = {key.sibling(phase="step") for key in keys if key.phase != "step"}
    return frozenset(key for key in keys if any(is_half(key, whole) for whole in cut))
