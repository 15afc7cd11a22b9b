"""Speedups of implementations against each other, from interleaved rounds; "not established" is one of the verdicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

from kdaprof.analysis.celldata import gather
from kdaprof.analysis.findings.figures import between
from kdaprof.analysis.guards import may_enter_ratio
from kdaprof.analysis.interleaved import Ratio, compare_interleaved, walls_by_round
from kdaprof.analysis.view import RawRun
from kdaprof.report.gfm import plain, text_table
from kdaprof.report.pairs import Cell
from kdaprof.runs.units import format_number

_PHASES = {"fwd": "fwd", "bwd": "bwd", "fwdbwd": "fwd + bwd", "step": "step"}
_WORDS = {"slower": "is ahead", "faster": "is behind", "same": "the same", "not-established": "not established"}


def speedups(raw: RawRun, group: Sequence[Cell]) -> list[str]:
    """A row a pair of paths and phase: how many times as fast, with the interval that decides."""
    rows = []
    by_place: dict[tuple[str, str, str], list[Cell]] = defaultdict(list)
    for cell in group:
        by_place[cell.key.phase, cell.key.mode, cell.key.context].append(cell)
    for (phase, mode, context), cells in by_place.items():
        fit = sorted((c for c in cells if _wall(c) is not None), key=lambda c: _wall(c) or 0.0)
        where = _PHASES.get(phase, phase) + (", CUDA Graph" if mode == "graph" else "")
        where += f", {context}" if context != "plain" else ""
        for fast, slow in combinations(fit, 2):
            rows.append([f"{fast.key.path} against {slow.key.path}", where, *_said(raw, fast, slow)])
    if not rows:
        return ["No two implementations of this were measured."]
    legend = (
        "Times as fast, by wall, over the rounds that both share; in brackets the 95 % interval. A verdict needs an "
        "interval that excludes 1, and figures whose path and outputs are not in doubt."
    )
    return [*text_table(("comparison", "phase", "speedup", "verdict"), rows, right=(2,)), "", legend]


def _said(raw: RawRun, fast: Cell, slow: Cell) -> tuple[str, str]:
    barred = [cell for cell in (fast, slow) if not may_enter_ratio(cell.result.facts["wall_ns"])]
    if barred:
        rules = sorted({r.rule for cell in barred for r in cell.result.facts["wall_ns"].reasons})
        return "—", f"not established: {' and '.join(c.key.path for c in barred)} refused by {', '.join(rules)}"
    ratio = compare_interleaved(_rounds(raw, fast), _rounds(raw, slow))
    if ratio.value is None or ratio.interval is None:
        return "—", f"not established: {plain(ratio.why or 'no interval')}"
    return f"{format_number(ratio.value)} × ({between(*ratio.interval)})", _verdict(fast, ratio)


def _verdict(fast: Cell, ratio: Ratio) -> str:
    words = _WORDS[ratio.verdict]
    if ratio.verdict == "not-established":
        return f"{words}: {plain(ratio.why)}" if ratio.why else words
    return words if ratio.verdict == "same" else f"{fast.key.path} {words}"


def _rounds(raw: RawRun, cell: Cell) -> Mapping[int, Sequence[float]]:
    return walls_by_round(gather(raw, cell.record).steady())


def _wall(cell: Cell) -> float | None:
    fact = cell.fact("wall_ns")
    return None if fact is None or fact.value is None else float(fact.value)
