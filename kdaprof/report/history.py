"""The history on a terminal, and as the document `kdaprof.history/1`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from kdaprof.analysis.history import LEAST_CHANGE, POINTS_MIN, Change, Point, Series
from kdaprof.report.labels import FIGURES
from kdaprof.report.units import utc
from kdaprof.runs.codec import schema_name, to_json
from kdaprof.runs.facts import Fact
from kdaprof.runs.retractions import Retraction
from kdaprof.runs.units import format_number, format_value

_BARS = "▁▂▃▄▅▆▇█"
_COMMIT = 9


def history_document(
    series: Sequence[Series], retractions: Sequence[Retraction], *, tool: str, command: Sequence[str], store: str
) -> dict[str, Any]:
    """The document of `kdaprof history --json`, every figure as it stands now."""
    return {
        "schema": schema_name("history"),
        "tool": tool,
        "command": list(command),
        "complete": True,
        "store": store,
        "thresholds": {"points_min": POINTS_MIN, "least_change": LEAST_CHANGE},
        "series": [_document(one) for one in series],
        "retractions": to_json(retractions),
    }


def history_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of that document, as shipped in the package."""
    raw = resources.files("kdaprof.runs").joinpath("schemas/history-1.json").read_bytes()
    schema: dict[str, Any] = msgspec.json.decode(raw)
    return schema


def show_history(console: Console, series: Sequence[Series]) -> None:
    """Each series as a table, oldest run first, with its changes of level between the rows where they happened."""
    for number, one in enumerate(series):
        if number:
            console.print()
        _show(console, one)


def figure_name(fact: str) -> str:
    """What tables call a figure; its own name where they have none."""
    return FIGURES[fact][0] if fact in FIGURES else fact


def figure_text(fact: Fact) -> str:
    """`188 µs [185 µs, 197 µs]`; in parentheses with its rules when it may not be quoted."""
    if fact.value is None:
        return f"missing: {fact.detail or fact.missing}"
    text = format_value(fact.value, fact.unit)
    if fact.ci95 is not None and fact.ci95[0] != fact.ci95[1]:
        text += f" [{', '.join(format_value(end, fact.unit) for end in fact.ci95)}]"
    if fact.quotable:
        return text
    return f"({text}) {' '.join(dict.fromkeys(reason.rule for reason in fact.reasons))}".rstrip()


def sparkline(values: Sequence[float]) -> str:
    """Heights from the least to the greatest value; level when they are all the same."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in values)


def _show(console: Console, one: Series) -> None:
    values = [float(point.fact.value) for point in one.points if point.fact.value is not None]
    title = Text(f"{figure_name(one.name)} · {one.cell}", style="bold")
    title.append(f"  {sparkline(values)}" if len(values) > 1 else "", style="cyan")
    console.print(title, soft_wrap=True)
    console.print(Text(one.machine, style="dim"), soft_wrap=True)
    rows = [(utc(p.stamp.started_unix_ns)[:16], _commit(p), figure_text(p.fact), p) for p in one.points]
    widths = [max(len(str(row[column])) for row in rows) for column in range(3)]
    changes = {change.run: change for change in one.changes}
    for when, commit, text, point in rows:
        if point.stamp.run in changes:
            console.print(Text(f"  ── {_change(changes[point.stamp.run], point.fact)}", style="yellow"), soft_wrap=True)
        line = Text(f"  {when:<{widths[0]}}  {commit:<{widths[1]}}  ")
        line.append(f"{text:<{widths[2]}}", style="" if point.fact.quotable else "dim strike")
        line.append(
            f"  n {point.fact.n:,}  {point.stamp.run}{'' if point.stamp.complete else ' (partial)'}", style="dim"
        )
        console.print(line, soft_wrap=True)
    for reason in dict.fromkeys(f"{r.rule}: {r.text}" for point in one.points for r in point.fact.reasons):
        console.print(Text(f"  {reason}", style="dim"), soft_wrap=True)
    if one.why and len(one.points) > 1:
        console.print(Text(f"  no changes looked for: {one.why}", style="dim"), soft_wrap=True)


def _commit(point: Point) -> str:
    commit = point.stamp.commit
    return f"{commit[:_COMMIT]}{'*' if point.stamp.dirty else ''}" if commit else "no commit"


def _change(change: Change, fact: Fact) -> str:
    before, after = (format_value(level, fact.unit) for level in (change.before, change.after))
    return f"a new level: {before} → {after}, {format_number(change.ratio)} ×"


def _document(one: Series) -> dict[str, Any]:
    points = [
        {
            "run": point.stamp.run,
            "started_unix_ns": point.stamp.started_unix_ns,
            "complete": point.stamp.complete,
            "tool": point.stamp.tool,
            "commit": point.stamp.commit,
            "dirty": point.stamp.dirty,
            "torch": point.stamp.torch,
            "triton": point.stamp.triton,
            "driver": point.stamp.driver,
            "figure": to_json(point.fact),
        }
        for point in one.points
    ]
    changes = [to_json(change) | {"ratio": change.ratio} for change in one.changes]
    return {
        "machine": one.machine,
        "cell": one.cell,
        "fact": one.name,
        "points": points,
        "changes": changes,
        "no_changes": one.why,
    }
