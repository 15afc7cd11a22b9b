"""Kind `paths`: a probe a shape, whose rounds are A B B A, and whose rules say what may enter a ratio."""

from __future__ import annotations

from pathlib import Path

from kdaprof.analysis.ab.contract import Shape
from kdaprof.analysis.ab.evidence import ShapeEvidence, SideEvidence
from kdaprof.analysis.derive import judged_views
from kdaprof.analysis.guards import may_enter_ratio
from kdaprof.analysis.recompute import load_raw
from kdaprof.analysis.view import CellView
from kdaprof.errors import UsageError
from kdaprof.probe.ab.order import Order
from kdaprof.probe.plan import Effort, Request

RUNS_FOLDER = "runs"


def path_request(order: Order, shape: Shape) -> Request:
    """The probe of one shape, as `kdaprof probe` would be asked for it. Errors: UsageError for an unknown path."""
    contract, sides = order.contract, order.sides
    measure = contract.measure
    effort = Effort(
        rounds=measure.rounds,
        rounds_most=1,
        samples=measure.samples,
        warmup=measure.warmup,
        util_seconds=0.0,
    )
    if sides[0] == sides[1]:
        raise UsageError(f"base and cand are both {sides[0]!r}: name two paths")
    return Request(
        paths=",".join(sides),
        contexts="plain",
        modes="eager",
        phases=contract.op.phase,
        shape=shape.size,
        chunk=contract.op.chunk,
        dtype=contract.op.dtype,
        device=measure.device,
        cache="rotate",
        cold=False,
        seed=measure.seed,
        effort=effort,
        out=order.out / RUNS_FOLDER / shape.name,
        force=True,  # --out as a whole was checked; a shape's folder in it is ours
        anonymous=False,
        command=order.command,
    ).checked()


def evidence_of_run(shape: str, run: Path, sides: tuple[str, str], phase: str) -> ShapeEvidence:
    """What a stored probe of two paths says: steady walls by round, peaks, and the rules that bar a ratio."""
    cells = [
        view for view in judged_views(load_raw(run)) if (view.cell.key.mode, view.cell.key.phase) == ("eager", phase)
    ]
    views = {view.cell.key.path: view for view in cells}
    base, cand = (_side(views[path]) for path in sides)
    return ShapeEvidence(shape=shape, base=base, cand=cand)


def _side(view: CellView) -> SideEvidence:
    fact, observed = view.facts["wall_ns"], view.cell.observed
    rounds: dict[int, tuple[int, ...]] = {}
    for sample in view.steady():
        if sample.round >= 0 and sample.wall_ns is not None:
            rounds[sample.round] = (*rounds.get(sample.round, ()), sample.wall_ns)
    peaks = tuple(s.peak_bytes for s in view.of("alloc") if s.peak_bytes is not None)
    check = observed.check if observed is not None else None
    error = view.cell.error
    return SideEvidence(
        rounds=rounds,
        peak_bytes=peaks,
        peak_missing=view.facts["peak_bytes"].detail,
        refused=() if may_enter_ratio(fact) else fact.reasons,
        noted=fact.reasons if may_enter_ratio(fact) else (),
        wrong=None if check is None or check.passed else _wrong(view),
        error=None if view.cell.status == "ok" or error is None else f"{error.type}: {error.text}",
    )


def _wrong(view: CellView) -> str:
    check = view.cell.observed.check if view.cell.observed is not None else None
    assert check is not None
    off = [t for t in check.tensors if not t.finite or t.l2 is None or t.l2 > check.tolerance_l2]
    told = [f"{t.name} {'not finite' if not t.finite else f'{t.l2:.2g}'}" for t in off]
    return f"relative error against the {check.against}: {', '.join(told)} (limit {check.tolerance_l2:g})"
