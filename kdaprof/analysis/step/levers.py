"""What a step would take without each of its parts (derived), and what it took where that was tried (measured)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kdaprof.analysis.figure import derived, estimate_of, without
from kdaprof.analysis.propagate import Term, propagate
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
        found += [_without_part(record.run, whole, step, row) for row in attribution.rows if row.kind == "phase"]
        found += _without_op(record.run, whole, step, [row for row in attribution.rows if row.kind == "op"])
        busy = step["gpu_busy_ns"]
        found.append(Lever(name="the host (GPU work alone)", whole=whole, measured=False, now=wall, then=busy))
        for key, facts in ok.items():
            if key.phase == "step" and key != whole:
                name = _tried(whole, key)
                if name is not None:
                    found.append(Lever(name=name, whole=whole, measured=True, now=wall, then=facts["wall_ns"]))
        if not any(lever.whole == whole and lever.name == HALF for lever in found):
            found += _half_the_loop(record.run, whole, step, attribution.rows)
    fit = [lever for lever in found if lever.now.quotable and lever.then.quotable and _gain(lever) > 0]
    return tuple(sorted(fit, key=lambda lever: (lever.whole.id, -_gain(lever))))


def _gain(lever: Lever) -> float:
    return 0.0 if lever.now.value is None or lever.then.value is None else float(lever.now.value - lever.then.value)


def _without_part(run: str, whole: CellKey, step: Mapping[str, Fact], row: PartRow) -> Lever:
    then = _left(run, whole, step, [row], "wall_ns")
    return Lever(name=row.name, whole=whole, measured=False, now=step["wall_ns"], then=then)


def _without_op(run: str, whole: CellKey, step: Mapping[str, Fact], rows: Sequence[PartRow]) -> list[Lever]:
    """KDA: its host time where the host bounds the step, its GPU time where the GPU does; never the sum of both."""
    bound = step["host_bound"]
    if bound.value is None or not bound.quotable or not rows:
        return []
    by_host = bound.value >= 0.15
    then = _left(run, whole, step, rows, "host_ns" if by_host else "gpu_busy_ns")
    label = f"kda, by its {'host' if by_host else 'GPU'} time"
    return [Lever(name=label, whole=whole, measured=False, now=step["wall_ns"], then=then)]


def _half_the_loop(run: str, whole: CellKey, step: Mapping[str, Fact], rows: Sequence[PartRow]) -> list[Lever]:
    """Half of what the looped phases take: at most what half the iterations give, where nobody has measured it."""
    looped = [row for row in rows if row.kind == "phase" and row.name in LOOPED and row.key is not None]
    if (iterations_of(whole) or 0) < 2 or len(looped) < len(LOOPED):
        return []
    then = _left(run, whole, step, looped, "wall_ns", share=0.5)
    return [Lever(name=f"{HALF}, at most", whole=whole, measured=False, now=step["wall_ns"], then=then)]


def _left(
    run: str, whole: CellKey, step: Mapping[str, Fact], parts: Sequence[PartRow], name: str, share: float = 1.0
) -> Fact:
    """The step's wall less `share` of the parts' `name`, but not less than what the GPU still has to do.

    A phase's wall is taken with borders, where the host waits for the GPU; the step has none, and the host runs ahead.
    """
    wall = _less(run, whole, step, "wall_ns", parts, name, share)
    busy = _less(run, whole, step, "gpu_busy_ns", parts, "gpu_busy_ns", share)
    if wall.value is not None and busy.value is not None and busy.value > wall.value:
        return busy
    return wall


def _less(
    run: str, whole: CellKey, step: Mapping[str, Fact], of_step: str, parts: Sequence[PartRow], name: str, share: float
) -> Fact:
    pairs = [(fact_id(run, row.key.id, name), row.facts[name]) for row in parts if row.key is not None]
    total, now = sum_of(pairs), step[of_step]
    gone = without("ns", ((of_step, now), ("the parts' sum", total)))
    if gone is not None or not pairs:
        return gone or absent("ns", "not-applicable", "no such part")
    part = estimate_of(total)
    left = propagate(estimate_of(now).value - share * part.value, [Term(estimate_of(now), 1.0), Term(part, -share)])
    sources = (fact_id(run, whole.id, of_step), *(source for source, _ in pairs))
    return refused_like(derived("ns", left, (now, total), sources), (now, total))


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
