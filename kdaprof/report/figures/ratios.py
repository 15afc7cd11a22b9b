"""Ratios with their intervals against 1: of a comparison, or of any pairs that were measured in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kdaprof.analysis.compare import RunComparison
from kdaprof.analysis.interleaved import SAME_BAND, Comparison
from kdaprof.analysis.stats import Interval
from kdaprof.report.html.charts.base import GREY, blank, safe
from kdaprof.runs.units import format_number

_COLOURS: dict[Comparison, str] = {
    "faster": "#2f9e44",
    "slower": "#e03131",
    "same": "#495fd6",
    "not-established": GREY,
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One ratio: its name, value (below 1 is faster), interval and verdict."""

    name: str
    ratio: float
    interval: Interval
    verdict: Comparison


def ratios(found: RunComparison) -> Any:
    """Candidate / base of every figure of a comparison that a ratio could be made of."""
    bars = [
        Bar(f"{row.cell} {row.fact}", row.ratio, row.interval, row.verdict)
        for row in found.rows
        if row.ratio is not None and row.interval is not None
    ]
    return ratio_bars(bars, band=found.band, threshold=found.threshold)


def ratio_bars(bars: Sequence[Bar], *, band: float = SAME_BAND, threshold: float | None = None) -> Any:
    """A line a ratio, with its interval; the band of `same` shaded, the threshold of a regression dashed."""
    figure = blank(
        110 + 30 * len(bars),
        xaxis={"type": "log", "title": {"text": "candidate / base (below 1: faster)"}, "automargin": True},
        yaxis={
            "autorange": "reversed",
            "automargin": True,
            "categoryorder": "array",
            "categoryarray": [safe(bar.name) for bar in bars],
        },
    )
    for verdict, colour in _COLOURS.items():
        mine = [bar for bar in bars if bar.verdict == verdict]
        figure.add_scatter(
            x=[bar.ratio for bar in mine],
            y=[safe(bar.name) for bar in mine],
            name=verdict.replace("-", " "),
            mode="markers",
            marker={"color": colour, "size": 10},
            error_x={
                "array": [bar.interval[1] - bar.ratio for bar in mine],
                "arrayminus": [bar.ratio - bar.interval[0] for bar in mine],
                "symmetric": False,
            },
            customdata=[" to ".join(format_number(end) for end in bar.interval) for bar in mine],
            hovertemplate="%{y}<br>%{x:.3g} ×, %{customdata}<extra></extra>",
        )
    figure.add_vrect(x0=1 - band, x1=1 + band, fillcolor=GREY, opacity=0.15, line_width=0)
    if threshold is not None:
        figure.add_vline(x=1 + threshold, line={"dash": "dash", "color": _COLOURS["slower"], "width": 1})
    return figure
