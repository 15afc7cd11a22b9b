"""The allocator: peak and traffic of one call, a bar a cell."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.report.html.charts.base import GPM, GRAPH, WALL, blank, chart, safe
from kdaprof.report.html.model import Chart
from kdaprof.report.pairs import Naming, Pair
from kdaprof.runs.units import format_bytes

_BARS = (
    ("peak over what was there", "eager", "peak_bytes", WALL),
    ("allocated in all", "eager", "alloc_bytes", GPM),
    ("pool of the graph", "graph", "pool_bytes", GRAPH),
)


def memory(pairs: Sequence[Pair], names: Naming) -> Chart | None:
    """None where no allocator was read."""
    told = [pair for pair in pairs if any(_bytes(pair, mode, fact) for _, mode, fact, _ in _BARS)]
    if not told:
        return None
    labels = [safe(names.name(pair.key)) for pair in told]
    figure = blank(
        96 + 52 * len(told),
        barmode="group",
        bargap=0.3,
        bargroupgap=0.08,
        xaxis={"type": "log", "tickformat": "~s", "ticksuffix": "B", "automargin": True, "dtick": 1},
        yaxis={"autorange": "reversed", "automargin": True},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    )
    for title, mode, fact, colour in _BARS:
        values = [_bytes(pair, mode, fact) or None for pair in told]
        if any(values):
            figure.add_bar(
                y=labels,
                x=values,
                name=title,
                orientation="h",
                marker={"color": colour},
                customdata=[format_bytes(value) if value else "" for value in values],
                hovertemplate=f"%{{y}}<br>{title} %{{customdata}}<extra></extra>",
            )
    says = "; ".join(f"{names.name(pair.key)}: {_in_words(pair)}" for pair in told)
    return chart("memory", "Memory of one call (logarithmic)", says, figure)


def _in_words(pair: Pair) -> str:
    found = ((title, _bytes(pair, mode, fact)) for title, mode, fact, _ in _BARS)
    return ", ".join(f"{title} {format_bytes(value)}" for title, value in found if value)


def _bytes(pair: Pair, mode: str, name: str) -> float | None:
    fact = pair.fact(mode, name)
    return None if fact is None or fact.value is None else float(fact.value)
