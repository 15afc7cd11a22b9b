"""A comparison of two stored runs on a terminal, and as the document `kdaprof.compare/1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from kdaprof.analysis.compare import NOT_INTERLEAVED, Row, RunComparison
from kdaprof.analysis.compare_shapes import ShapesMean
from kdaprof.report.history import figure_name
from kdaprof.runs.codec import schema_name, to_json
from kdaprof.runs.facts import Fact
from kdaprof.runs.record import RunRecord
from kdaprof.runs.units import format_number, format_value

_STYLE = {"faster": "green", "slower": "bold red", "same": "", "not-established": "yellow"}
_WORDS = {
    "go": "GO: nothing that could be compared is slower than the threshold allows",
    "no-go": "NO-GO: a regression beyond the threshold",
    "not-established": "not established",
}


def compare_document(
    found: RunComparison,
    sides: tuple[tuple[RunRecord, Path], tuple[RunRecord, Path]],
    *,
    tool: str,
    command: Sequence[str],
) -> dict[str, Any]:
    """The document of `kdaprof compare --json`."""
    base, cand = (_side(record, path) for record, path in sides)
    return {
        "schema": schema_name("compare"),
        "tool": tool,
        "command": list(command),
        "complete": all(record.complete for record, _ in sides),
        "base": base,
        "cand": cand,
        "threshold": found.threshold,
        "same_band": found.band,
        "differences": to_json(found.differences),
        "notes": [NOT_INTERLEAVED],
        "rows": [_row(row) for row in found.rows],
        "means": [_mean(mean) for mean in found.means],
        "unmatched": {"base": list(found.only_base), "cand": list(found.only_cand)},
        "gates": [_gate(row, found.threshold) for row in found.rows if row.gate is not None],
        "decision": found.decision,
    }


def compare_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of that document, as shipped in the package."""
    raw = resources.files("kdaprof.runs").joinpath("schemas/compare-1.json").read_bytes()
    schema: dict[str, Any] = msgspec.json.decode(raw)
    return schema


def show_comparison(console: Console, found: RunComparison) -> None:
    """What differs between the runs first, then a line a figure, then what may be concluded."""
    _line(console, f"base       {found.base}", "dim")
    _line(console, f"candidate  {found.cand}", "dim")
    _differences(console, found)
    by_fact: dict[str, list[Row]] = {}
    for row in found.rows:
        by_fact.setdefault(row.fact, []).append(row)
    same, names = _names(list(dict.fromkeys(row.cell for row in found.rows)))
    for fact, rows in by_fact.items():
        console.print()
        _line(console, f"{figure_name(fact)} of {same}: base → candidate, candidate / base [95 %]", "bold")
        _table(console, rows, names)
    for mean in found.means:
        console.print()
        title = f"geometric mean of {figure_name(mean.fact)} over {len(mean.shapes)} shapes, {mean.cell}"
        _line(console, f"{title}: {_ratio(mean)}  {mean.verdict.replace('-', ' ')}", "bold")
        _line(console, f"  {mean.why + '; ' if mean.why else ''}{', '.join(mean.shapes)}", "dim")
    for side, cells in (("base", found.only_base), ("candidate", found.only_cand)):
        if cells:
            console.print()
            _line(console, f"only in {side}: {', '.join(cells)}", "dim")
    console.print()
    _line(console, NOT_INTERLEAVED, "dim")
    _line(console, f"threshold {format_number(1 + found.threshold)} ×, same within 1 ± {found.band:g}", "dim")
    _line(console, _conclusion(found), "bold")


def _differences(console: Console, found: RunComparison) -> None:
    console.print()
    if found.base == found.cand:
        _line(console, "base and candidate are the same run: its ratios say only how wide its intervals are", "yellow")
    if not found.differences:
        _line(console, "same machine, versions, settings, clocks, cache policy and shapes", "")
        return
    _line(console, "the runs differ in", "bold")
    width = max(len(one.what) for one in found.differences)
    for one in found.differences:
        _line(console, f"  {one.what:<{width}}  {one.base} → {one.cand}", "yellow")


def _table(console: Console, rows: Sequence[Row], names: Mapping[str, str]) -> None:
    told = [row for row in rows if row.ratio is not None]
    texts = [(names[row.cell], f"{_figure(row.base)} → {_figure(row.cand)}", _ratio(row), row) for row in told]
    widths = [max((len(str(text[column])) for text in texts), default=0) for column in range(3)]
    for cell, figures, ratio, row in texts:
        line = Text(f"  {cell:<{widths[0]}}  {figures:<{widths[1]}}  {ratio:<{widths[2]}}  ")
        line.append(row.verdict.replace("-", " "), style=_STYLE[row.verdict])
        line.append(f": {row.why}" if row.why else "", style="dim")
        line.append("  regression" if row.gate == "fail" else "", style="bold red")
        console.print(line, soft_wrap=True)
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.ratio is None:
            figures = f" {_figure(row.base)} → {_figure(row.cand)}" if row.base.value or row.cand.value else ""
            reasons.setdefault(row.why or "", []).append(names[row.cell] + figures)
    for why, cells in reasons.items():
        _line(console, f"  not compared, {why}: {', '.join(cells)}", "dim")


def _names(cells: Sequence[str]) -> tuple[str, dict[str, str]]:
    """What the cells' ids have in common, and each cell by the rest of its id."""
    parts = {cell: cell.split("/") for cell in cells}
    columns = list(zip_longest(*parts.values(), fillvalue=""))
    told = [number for number, column in enumerate(columns) if len(set(column)) > 1]
    same = " · ".join(column[0] for number, column in enumerate(columns) if number not in told)
    return same, {
        cell: " ".join(part[number] for number in told if number < len(part)) or "all" for cell, part in parts.items()
    }


def _figure(fact: Fact) -> str:
    if fact.value is None:
        return "—"
    text = format_value(fact.value, fact.unit)
    return text if fact.quotable else f"({text})"


def _ratio(row: Row | ShapesMean) -> str:
    if row.ratio is None or row.interval is None:
        return "—"
    return f"{format_number(row.ratio)} [{', '.join(format_number(end) for end in row.interval)}]"


def _conclusion(found: RunComparison) -> str:
    text = _WORDS[found.decision]
    gates = [row.gate for row in found.rows if row.gate is not None]
    if found.decision != "not-established":
        return text
    if not gates:
        return f"{text}: no figure of the base can be compared"
    return f"{text}: {gates.count('not-established')} of {len(gates)} figures could be slower than the threshold allows"


def _row(row: Row) -> dict[str, Any]:
    return {
        "cell": row.cell,
        "fact": row.fact,
        "base": to_json(row.base),
        "cand": to_json(row.cand),
        "ratio": {"value": row.ratio, "ci95": list(row.interval) if row.interval else None},
        "rounds": {"base": row.rounds[0], "cand": row.rounds[1]},
        "verdict": row.verdict,
        "why": row.why,
    }


def _mean(mean: ShapesMean) -> dict[str, Any]:
    return {
        "cell": mean.cell,
        "fact": mean.fact,
        "shapes": list(mean.shapes),
        "ratio": {"value": mean.ratio, "ci95": list(mean.interval) if mean.interval else None},
        "rounds": {"base": mean.rounds[0], "cand": mean.rounds[1]},
        "verdict": mean.verdict,
        "why": mean.why,
    }


def _gate(row: Row, threshold: float) -> dict[str, Any]:
    return {
        "name": f"{row.cell}/{row.fact}",
        "want": f"ratio at most {format_number(1 + threshold)}",
        "got": _ratio(row) if row.ratio is not None else row.why,
        "verdict": row.gate,
    }


def _side(record: RunRecord, path: Path) -> dict[str, Any]:
    side = {
        "run": record.run,
        "started_unix_ns": record.started_unix_ns,
        "complete": record.complete,
        "commit": record.environment.git_commit,
    }
    return side if record.environment.cwd is None else side | {"path": str(path)}


def _line(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style), soft_wrap=True)
