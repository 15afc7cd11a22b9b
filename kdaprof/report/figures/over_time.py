"""One series of the history: figures with intervals over time, levels between their changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from kdaprof.analysis.history import Point, Series
from kdaprof.report.history import figure_name, figure_text
from kdaprof.report.html.charts.base import GREY, WALL, blank, safe, time_axis
from kdaprof.runs.retractions import RULE

_RETRACTED = "#e03131"


def history_figure(series: Series) -> Any:
    """Quotable figures filled, refused ones hollow, retracted ones crossed; a dashed line where a new level begins."""
    # Plotly writes seconds as µs and ms by itself.
    unit = series.points[0].fact.unit
    per = 1e9 if unit == "ns" else 1.0
    axis = {"ns": time_axis(), "fraction": {"tickformat": ".0%"}, "1": {}}.get(unit, {"title": {"text": unit}})
    figure = blank(
        340,
        title={
            "text": _title(series),
            "font": {"size": 15},
            "x": 0,
            "xref": "paper",
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 12},
        },
        margin={"l": 72, "r": 16, "t": 96, "b": 44},
        yaxis={"rangemode": "tozero", "automargin": True} | axis,
    )
    for name, symbol, colour, points in _groups(series.points):
        figure.add_scatter(
            x=[_when(point) for point in points],
            y=[(point.fact.value or 0) / per for point in points],
            name=name,
            mode="markers",
            marker={"symbol": symbol, "size": 10, "color": colour, "line": {"width": 2, "color": colour}},
            error_y=_bars(points, per),
            customdata=[f"{safe(figure_text(point.fact))}<br>{safe(point.stamp.run)}" for point in points],
            hovertemplate="%{customdata}<extra></extra>",
        )
    starts = {point.stamp.run: _when(point) for point in series.points}
    for change in series.changes:
        figure.add_vline(x=starts[change.run], line={"dash": "dash", "color": GREY, "width": 1})
    return figure


def _title(series: Series) -> str:
    return f"{safe(figure_name(series.name))} · {safe(series.cell)}<br><sup>{safe(series.machine)}</sup>"


def _groups(points: Sequence[Point]) -> Iterator[tuple[str, str, str, list[Point]]]:
    for name, symbol, colour in (
        ("quotable", "circle", WALL),
        ("refused", "circle-open", GREY),
        ("retracted", "x-thin", _RETRACTED),
    ):
        mine = [point for point in points if _state(point) == name]
        if mine:
            yield name, symbol, colour, mine


def _state(point: Point) -> str:
    if point.fact.quotable:
        return "quotable"
    return "retracted" if any(reason.rule == RULE for reason in point.fact.reasons) else "refused"


def _when(point: Point) -> str:
    return datetime.fromtimestamp(point.stamp.started_unix_ns / 1e9, UTC).isoformat()


def _bars(points: Sequence[Point], per: float) -> dict[str, object]:
    ends = [(point.fact.value or 0, *(point.fact.ci95 or (None, None))) for point in points]
    return {
        "array": [None if high is None else (high - value) / per for value, _, high in ends],
        "arrayminus": [None if low is None else (value - low) / per for value, low, _ in ends],
        "symmetric": False,
        "thickness": 1,
    }
