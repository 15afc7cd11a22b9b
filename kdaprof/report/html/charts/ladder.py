"""Eager → graph → busy → floor on one logarithmic line a cell: what a graph buys, and what is left after it."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.report.html.charts.base import BUSY, FLOOR, GRAPH, GREY, WALL, blank, chart, log_time_axis, safe, seconds
from kdaprof.report.html.model import Chart
from kdaprof.report.pairs import Naming, Pair
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_ns

_STEPS = (
    ("floor", "eager", "floor_ns", FLOOR, "line-ns"),
    ("busy", "eager", "gpu_busy_ns", BUSY, "square"),
    ("graph wall", "graph", "wall_ns", GRAPH, "diamond"),
    ("eager wall", "eager", "wall_ns", WALL, "circle"),
)


def ladder(pairs: Sequence[Pair], names: Naming) -> Chart | None:
    """None where no cell has two of the four figures. Refused figures are hollow."""
    told = [
        pair for pair in pairs if sum(_value(pair.fact(mode, fact)) is not None for _, mode, fact, *_ in _STEPS) > 1
    ]
    if not told:
        return None
    labels = [safe(names.name(pair.key)) for pair in told]
    height = 96 + 34 * len(told)
    known = [_value(pair.fact(mode, fact)) for pair in told for _, mode, fact, *_ in _STEPS]
    figure = blank(height, xaxis=log_time_axis(seconds(known)), yaxis={"autorange": "reversed", "automargin": True})
    for pair, name in zip(told, labels, strict=True):
        found = [_value(pair.fact(mode, fact)) for _, mode, fact, *_ in _STEPS]
        ends = seconds(value for value in found if value is not None)
        figure.add_scatter(
            x=ends,
            y=[name] * len(ends),
            mode="lines",
            line={"color": GREY, "width": 2},
            opacity=0.45,
            hoverinfo="skip",
            showlegend=False,
        )
    for title, mode, fact, colour, symbol in _STEPS:
        facts = [pair.fact(mode, fact) for pair in told]
        hollow = [f"{symbol}-open" if found and not found.quotable else symbol for found in facts]
        figure.add_scatter(
            x=seconds(map(_value, facts)),
            y=labels,
            name=title,
            mode="markers",
            marker={"color": colour, "size": 12, "symbol": hollow, "line": {"width": 2, "color": colour}},
            error_x=_bars(facts),
            customdata=[_said(found) for found in facts],
            hovertemplate=f"%{{y}}<br>{title} %{{customdata}}<extra></extra>",
        )
    says = "; ".join(f"{names.name(pair.key)}: {_in_words(pair)}" for pair in told)
    return chart("ladder", "From the eager call down to the floor (logarithmic)", says, figure)


def _bars(facts: Sequence[Fact | None]) -> dict[str, object]:
    high = [f.ci95[1] - f.value if f and f.ci95 and f.value is not None else None for f in facts]
    low = [f.value - f.ci95[0] if f and f.ci95 and f.value is not None else None for f in facts]
    return {"array": seconds(high), "arrayminus": seconds(low), "symmetric": False, "thickness": 1, "width": 3}


def _said(fact: Fact | None) -> str:
    if fact is None or fact.value is None:
        return ""
    rules = "" if fact.quotable else f" (refused: {', '.join(sorted({reason.rule for reason in fact.reasons}))})"
    return safe(format_ns(fact.value) + rules)


def _in_words(pair: Pair) -> str:
    found = ((title, _value(pair.fact(mode, fact))) for title, mode, fact, *_ in reversed(_STEPS))
    return ", ".join(f"{title} {format_ns(value)}" for title, value in found if value is not None)


def _value(fact: Fact | None) -> float | None:
    return None if fact is None or fact.value is None or fact.value <= 0 else float(fact.value)
