"""Findings across paths: which is faster by interleaved rounds, who trades GPU time for host time, memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from kdaprof.analysis.findings.figures import between, phase_of, quoted, times
from kdaprof.analysis.guards import may_enter_ratio
from kdaprof.analysis.interleaved import MIN_ROUNDS, SAME_BAND, Ratio, compare_interleaved, walls_by_round
from kdaprof.analysis.step.proof import COPY_PATH
from kdaprof.analysis.view import CellView
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import Fact
from kdaprof.runs.results import Finding, Scalar
from kdaprof.runs.units import format_bytes, format_ns

COMPARED = "paths-compared"
PEAK_RATIO_NOTE = 1.5


def compared(views: Sequence[CellView]) -> Iterator[Finding]:
    """Every path of a group against the one with the least median wall, by the rounds they share."""
    for group in groups_of(views):
        fit = [view for view in group if enters(view.facts, "wall_ns")]
        if len(fit) < 2:
            continue
        fastest = min(fit, key=_wall)
        others = [view for view in fit if view is not fastest]
        numbers: dict[str, Scalar] = {"fastest": fastest.cell.key.path}
        said = []
        for other in others:
            ratio, path = compare_interleaved(rounds_of(fastest), rounds_of(other)), other.cell.key.path
            low, high = ratio.interval or (None, None)
            numbers |= {
                f"{path}_ratio": ratio.value,
                f"{path}_low": low,
                f"{path}_high": high,
                f"{path}_verdict": ratio.verdict,
            }
            said.append(_sentence(fastest.cell.key.path, path, ratio))
        key = fastest.cell.key
        yield Finding(
            id=COMPARED,
            severity="info",
            cell=fastest.cell.id,
            text=f"{phase_of(key)}{' (graph)' if key.mode == 'graph' else ''}, wall: {'; '.join(said)}",
            evidence=numbers,
            threshold={"same_band": SAME_BAND, "rounds_min": MIN_ROUNDS},
            next="Ratios hold for this shape, dtype and card: probe the shape that you train with (--shape, --dtype).",
        )


def _sentence(fastest: str, other: str, ratio: Ratio) -> str:
    if ratio.value is None or ratio.interval is None:
        return f"{fastest} against {other} not established ({ratio.why})"
    span = f"{ratio.value:.3g} × ({between(*ratio.interval)})"
    if ratio.verdict == "slower":
        return f"{other} takes {span} the time of {fastest}"
    if ratio.verdict == "same":
        return f"{other} and {fastest} take the same, {span}"
    if ratio.why:
        return f"{other} took {span} the time of {fastest}, not established: {ratio.why}"
    return f"no difference between {other} and {fastest} is established, {span}"


def slower_though_gpu_fast(views: Sequence[CellView]) -> Iterator[Finding]:
    """A path with less GPU work than another and more wall a call: the host decides, not the kernel."""
    for group in groups_of(views):
        fit = [view for view in group if view.cell.key.mode == "eager" and enters(view.facts, "wall_ns")]
        for view in fit:
            rivals = [r for r in fit if r is not view and _less(view.facts, r.facts, "gpu_busy_ns")]
            rivals = [r for r in rivals if compare_interleaved(rounds_of(r), rounds_of(view)).verdict == "slower"]
            if not rivals:
                continue
            rival = min(rivals, key=_wall)
            yield _host_decides(view, rival)


def _host_decides(view: CellView, rival: CellView) -> Finding:
    mine, theirs = view.facts, rival.facts
    busy, rival_busy = quoted(mine, "gpu_busy_ns"), quoted(theirs, "gpu_busy_ns")
    ratio = compare_interleaved(rounds_of(rival), rounds_of(view))
    assert busy is not None
    assert rival_busy is not None
    assert ratio.value is not None
    name, other = view.cell.key.path, rival.cell.key.path
    piped, rival_piped = quoted(mine, "pipelined_ns"), quoted(theirs, "pipelined_ns")
    queued = ""
    if piped is not None and rival_piped is not None:
        queued = f"; back to back {format_ns(piped)} against {format_ns(rival_piped)}"
    return Finding(
        id="gpu-fast-but-slower-a-call",
        severity="warn",
        cell=view.cell.id,
        text=(
            f"{name} {phase_of(view.cell.key)}: GPU busy {format_ns(busy)} against {other}'s {format_ns(rival_busy)}, "
            f"yet a call takes {times(ratio.value)} the time{queued}: the host decides"
        ),
        evidence={
            "gpu_busy_ns": busy,
            "rival": other,
            "rival_gpu_busy_ns": rival_busy,
            "wall_ratio": ratio.value,
            "wall_ratio_low": ratio.interval[0] if ratio.interval else None,
            "wall_ratio_high": ratio.interval[1] if ratio.interval else None,
            "pipelined_ns": piped,
            "rival_pipelined_ns": rival_piped,
        },
        threshold={"wall_ratio_above": 1.0, "rounds_min": MIN_ROUNDS},
        next=f"Cut the host cost of {name} (fewer launches, cached launchers, a CUDA Graph) before its kernels.",
    )


def peak_memory(views: Sequence[CellView]) -> Iterator[Finding]:
    """Paths that need much more memory during a call than the leanest one."""
    for group in groups_of(views):
        proven = [v for v in group if not _of_another_path(v.facts)]
        peaks = {v.cell.key.path: p for v in proven if (p := quoted(v.facts, "peak_bytes")) is not None and p > 0}
        if len(peaks) < 2 or max(peaks.values()) < PEAK_RATIO_NOTE * min(peaks.values()):
            continue
        most, least = max(sorted(peaks), key=peaks.__getitem__), min(sorted(peaks), key=peaks.__getitem__)
        cell = next(view for view in group if view.cell.key.path == most)
        yield Finding(
            id="peak-memory",
            severity="info",
            cell=cell.cell.id,
            text=(
                f"{phase_of(cell.cell.key)}: {most} needs {format_bytes(peaks[most])} beyond its inputs during a call, "
                f"{times(peaks[most] / peaks[least])} the {format_bytes(peaks[least])} of {least}"
            ),
            evidence={f"{path}_peak_bytes": peak for path, peak in peaks.items()},
            threshold={"ratio_note": PEAK_RATIO_NOTE},
            next=f"Where memory bounds the batch, {least} leaves room for a larger one.",
        )


def groups_of(views: Sequence[CellView]) -> Iterator[list[CellView]]:
    """Cells that differ in their path alone, measured interleaved; a step without the op is no path to take."""
    groups: dict[CellKey, list[CellView]] = defaultdict(list)
    for view in views:
        if view.cell.key.path != COPY_PATH:
            groups[view.cell.key.sibling(path="*")].append(view)
    return (group for group in groups.values() if len(group) > 1)


def rounds_of(view: CellView) -> Mapping[int, Sequence[float]]:
    """Steady walls by round."""
    return walls_by_round(view.steady())


def enters(facts: Mapping[str, Fact], name: str) -> bool:
    """Whether a figure is there and may stand in a ratio."""
    fact = facts.get(name)
    return fact is not None and may_enter_ratio(fact)


def _of_another_path(facts: Mapping[str, Fact]) -> bool:
    """Whether Q06 holds. It leaves counts alone, but set beside those of another path they would be quoted."""
    fact = facts.get("wall_ns")
    return fact is not None and any(reason.rule == "Q06" for reason in fact.reasons)


def _less(mine: Mapping[str, Fact], theirs: Mapping[str, Fact], name: str) -> bool:
    """Whether a quotable figure lies below another, their intervals apart."""
    a, b = mine.get(name), theirs.get(name)
    if a is None or b is None or not (a.quotable and b.quotable) or a.ci95 is None or b.ci95 is None:
        return False
    return a.ci95[1] < b.ci95[0]


def _wall(view: CellView) -> float:
    value = view.facts["wall_ns"].value
    assert value is not None
    return value
