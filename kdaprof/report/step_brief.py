"""A training step on a terminal: its attribution in few columns, and a sentence each for what else it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kdaprof.analysis.figure import estimate_of
from kdaprof.analysis.propagate import ratio
from kdaprof.analysis.stats import median
from kdaprof.analysis.step.allocator import growth_of
from kdaprof.analysis.step.attribution import Attribution, PartRow, attributions
from kdaprof.analysis.step.cold import cold_cost
from kdaprof.analysis.step.levers import is_half, levers
from kdaprof.report.labels import label
from kdaprof.report.pairs import Pair
from kdaprof.report.scene import Scene
from kdaprof.report.step import added_up
from kdaprof.report.step_cold import CAUSES, first_steps
from kdaprof.report.step_memory import recorded
from kdaprof.report.tables import FigureColumn, figure_table
from kdaprof.report.upright import Upright, upright_of
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import EAGER_FACTS, Fact
from kdaprof.runs.units import format_bytes, format_fraction, format_ns

_COLUMNS = ("wall_ns", "host_ns", "gpu_busy_ns", "launches")
_LEVERS = 3
OP = "KDA"


@dataclass(frozen=True, slots=True)
class Brief:
    """One eager step: parts down, figures across, and the sentences below; `covered` are the pairs it speaks for."""

    whole: CellKey
    table: Upright
    sentences: tuple[str, ...]
    covered: tuple[Pair, ...]


def briefs(scene: Scene) -> tuple[Brief, ...]:
    """Every step whose phases were measured, in the order of the run; none in a run without such steps."""
    return tuple(
        Brief(one.whole, _table(one), tuple(_sentences(scene, one)), _covered(scene, one.whole))
        for one in attributions(scene.record, scene.results)
    )


def _covered(scene: Scene, whole: CellKey) -> tuple[Pair, ...]:
    """The step, its parts, and its half: all that the table and the sentences below it tell of."""
    return tuple(
        pair
        for pair in scene.pairs
        if (pair.key.workload, pair.key.path, pair.key.context, pair.key.dtype)
        == (whole.workload, whole.path, whole.context, whole.dtype)
        and (pair.key.shape == whole.shape or is_half(pair.key, whole.sibling(phase=pair.key.phase)))
    )


def _table(one: Attribution) -> Upright:
    names = [_name(row) for row in one.rows]
    columns = [
        FigureColumn(label(name), EAGER_FACTS[name], tuple(_shown(row, name) for row in one.rows)) for name in _COLUMNS
    ]
    columns.append(FigureColumn("of step", "fraction", tuple(row.share for row in one.rows)))
    return upright_of(figure_table([("part", names)], columns))


def _name(row: PartRow) -> str:
    return f"  {row.name}" if row.kind == "op" else row.name


def _shown(row: PartRow, name: str) -> Fact | None:
    """An op's calls have no wall by their nature: a dash, without a reason for each."""
    return None if row.kind == "op" and name == "wall_ns" else row.facts.get(name)


def _sentences(scene: Scene, one: Attribution) -> Iterator[str]:
    host, gpu = _op_shares(one, "host_ns", "wall_ns"), _op_shares(one, "gpu_busy_ns", "gpu_busy_ns")
    op_told = (f"{host} by its host time, of the wall" if host else "", f"{gpu} by its GPU work" if gpu else "")
    yield added_up(one)
    if any(op_told):
        yield f"{OP}: {'; '.join(filter(None, op_told))}."
    yield from filter(None, (_modes(scene, one.whole),))
    yield from _cold(scene, one.whole)
    yield from _memory(scene, one.whole)
    best = [lever for lever in levers(scene.record, scene.results) if lever.whole == one.whole][:_LEVERS]
    if best:
        told = (
            f"{lever.name} {_time(lever.now)} → {_time(lever.then)} ({'measured' if lever.measured else 'derived'})"
            for lever in best
        )
        yield f"Largest levers: {'; '.join(told)}."


def _op_shares(one: Attribution, of_op: str, of_phase: str) -> str:
    """The op's share of each phase that calls it, forward and backward apart; empty where it was not measured."""
    rows = {row.name: row for row in one.rows}
    told = []
    for row in one.rows:
        if row.kind != "op":
            continue
        phase = row.name.partition(".")[0]
        part, whole = row.facts[of_op], rows[phase].facts[of_phase]
        if part.value is not None and whole.value:
            share = ratio(estimate_of(part), estimate_of(whole)).value
            told.append(f"{_refused(format_fraction(share), part, whole)} of {phase}")
    return ", ".join(told)


def _modes(scene: Scene, whole: CellKey) -> str | None:
    """The step's other modes, as many as have a wall."""
    others = [c for c in scene.cells if c.key != whole and c.key.sibling(mode="eager") == whole]
    told = [
        f"{cell.key.mode} {_refused(_time(wall), wall)}"
        for cell in others
        if (wall := cell.fact("wall_ns")) is not None and wall.value is not None
    ]
    return f"In other modes: {', '.join(told)}." if told else None


def _cold(scene: Scene, whole: CellKey) -> Iterator[str]:
    for first in first_steps(scene):
        if first.key == whole:
            largest = max(cold_cost(first.step).parts, key=lambda part: part.ns, default=None)
            cause = f"; {CAUSES[largest.cause]} {format_ns(largest.ns)}" if largest is not None else ""
            yield f"{first.told[0].upper()}{first.told[1:]}{cause}."


def _memory(scene: Scene, whole: CellKey) -> Iterator[str]:
    for key, memory in recorded(scene):
        if key != whole:
            continue
        growth = growth_of(memory)
        grows = f", reserved grows {format_bytes(growth.bytes_a_step)} a step" if growth and growth.grows else ""
        yield f"Memory: {median(memory.allocs):g} allocations a step, peak {format_bytes(memory.peak_bytes)}{grows}."


def _time(fact: Fact) -> str:
    return "—" if fact.value is None else format_ns(float(fact.value))


def _refused(text: str, *facts: Fact) -> str:
    """In parentheses, as everywhere on a terminal, where a figure behind it may not be quoted."""
    return f"({text})" if any(not fact.quotable for fact in facts) else text
