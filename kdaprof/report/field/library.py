"""The tables of attention and of a product, in the layout of the field report."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.analysis.library import CardState, achieved, card_state
from kdaprof.analysis.view import RawRun
from kdaprof.report.field.columns import by_which_rules, column, medians
from kdaprof.report.field.speedups import speedups
from kdaprof.report.gfm import grid, in_cell, plain, table_lines, text_table
from kdaprof.report.pairs import Cell, shape_text
from kdaprof.report.rules import rule_title
from kdaprof.report.tables import DASH, Column, Table, figure_table
from kdaprof.runs.facts import Fact

_PHASES = {"fwd": "fwd", "bwd": "bwd", "fwdbwd": "fwd + bwd"}
_UNSTEADY = ("Q01", "Q02", "Q03", "Q04")
"""Rules by which a product's own figure is not established: not warm, spread, card shared, clocks moved."""


def attention(raw: RawRun, cells: Sequence[Cell]) -> list[str]:
    """A table a shape, dtype and phase: implementation, median, min, max, busy, peak, TFLOP/s, the kernel that ran."""
    lines: list[str] = []
    for (shape, dtype, phase), group in _by(cells).items():
        lines += ["", f"### {plain(f'{shape}, causal, {dtype}, {_PHASES.get(phase, phase)}')}", ""]
        ran = [cell for cell in group if cell.record.status == "ok"]
        walls = [cell.fact("wall_ns") for cell in ran]
        columns = [
            *medians(walls),
            column("busy", "ns", [cell.fact("gpu_busy_ns") for cell in ran]),
            column("peak", "B", [cell.fact("peak_bytes") for cell in ran]),
            column("rate", "FLOP/s", [_rate(raw, cell) for cell in ran]),
        ]
        names = [("implementation", [_name(cell) for cell in ran]), ("kernel", [_kernel(cell) for cell in ran])]
        lines += _told(figure_table(names, columns)) if ran else []
        lines += _unavailable(group)
        lines += ["", "#### Speedups", "", *speedups(raw, group)]
    told = (
        "Rate = operations / busy. Operations are those of the pairs that the mask leaves, T (T + 1) / 2 of T²; the "
        "field report counted all T². Peak is beyond the inputs."
    )
    return [*lines[1:], "", told]


def products(raw: RawRun, cells: Sequence[Cell]) -> list[str]:
    """A row a precision: median, min, max, busy, FLOP/s; clock, power and temperature beside; and whether it stands."""
    lines: list[str] = []
    shapes = list(dict.fromkeys(shape_text(cell.key) for cell in cells))
    for shape in shapes:
        group = [cell for cell in cells if shape_text(cell.key) == shape]
        ran = [cell for cell in group if cell.record.status == "ok"]
        lines += ["", f"### {plain(shape)}", ""]
        eager = [cell for cell in ran if cell.key.mode == "eager"]
        states = [card_state(raw, cell.record) for cell in eager]
        columns = [
            *medians([cell.fact("wall_ns") for cell in eager]),
            column("busy", "ns", [cell.fact("gpu_busy_ns") for cell in eager], "range"),
            column("rate", "FLOP/s", [_rate(raw, cell) for cell in eager]),
            column("SM clock", "Hz", [state.clock for state in states], "range"),
            column("power", "W", [state.power for state in states]),
            column("temperature", "°C", [state.temperature for state in states]),
        ]
        names = [("precision", [_name(cell) for cell in eager]), ("kernel", [_kernel(cell) for cell in eager])]
        lines += _told(figure_table(names, columns)) if eager else []
        lines += _unavailable(group)
        rows = [(_name(cell), _standing(cell)) for cell in eager]
        lines += ["", *text_table(("precision", "verdict"), rows)]
        lines += ["", f"Rate = operations / busy. {_of_power(states)}"]
        lines += ["", "#### Speedups", "", *speedups(raw, eager)]
    return lines[1:]


def _standing(cell: Cell) -> str:
    """`established`, or which rules say that it is not."""
    facts = [fact for name in ("wall_ns", "gpu_busy_ns") if (fact := cell.fact(name)) is not None]
    if all(fact.value is None for fact in facts):
        return "not measured"
    reasons = {reason.rule: reason.text for fact in facts for reason in fact.reasons}
    unsteady = [rule for rule in sorted(reasons) if rule in _UNSTEADY] or sorted(reasons)
    if not unsteady:
        return "established"
    return "not established: " + "; ".join(f"{rule} {rule_title(rule)}: {reasons[rule]}" for rule in unsteady)


def _of_power(states: Sequence[CardState]) -> str:
    where = "SM clock and temperature are read behind each sample."
    if any(state.power.value is not None and state.power_is_shared for state in states):
        return f"{where} Power is read there too, and averaged by NVML over a second: of all precisions in turn."
    if any(state.power.value is not None for state in states):
        return f"{where} Power is that of the precision's own loop, from its second second on."
    return where


def _unavailable(group: Sequence[Cell]) -> list[str]:
    """The rows of what torch has no kernel for, or what failed: a word and the reason, never a blank."""
    gone = [cell for cell in group if cell.record.status != "ok"]
    if not gone:
        return []
    rows = [
        (in_cell(_name(c)), c.record.status.upper(), in_cell(_why(c.record.error.text if c.record.error else DASH)))
        for c in gone
    ]
    columns = [Column(header, right=False) for header in ("not measured", "status", "reason")]
    return ["", *grid(columns, rows)]


def _why(text: str) -> str:
    return text.removeprefix("UNAVAILABLE: ")


def _rate(raw: RawRun, cell: Cell) -> Fact | None:
    return achieved(raw.record.run, cell.record, cell.result.facts)


def _kernel(cell: Cell) -> str:
    """The stages of the call by device time, each with its longest kernel; a dash without a device."""
    stages = cell.result.stages
    more = f" and {len(stages) - 2} more stages" if len(stages) > 2 else ""
    return ", ".join(stage.name for stage in stages[:2]) + more if stages else DASH


def _name(cell: Cell) -> str:
    return f"{cell.key.path} in a CUDA Graph" if cell.key.mode == "graph" else cell.key.path


def _told(table: Table) -> list[str]:
    return [*table_lines(table), *by_which_rules(table, "Struck out by:")]


def _by(cells: Sequence[Cell]) -> dict[tuple[str, str, str], list[Cell]]:
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((shape_text(cell.key), cell.key.dtype, cell.key.phase), []).append(cell)
    return groups
