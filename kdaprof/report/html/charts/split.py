"""Where a call's time goes: busy and the idle classes as shares of the wall, one bar a cell."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.report.html.charts.base import BUSY, IDLE, blank, chart, safe
from kdaprof.report.html.model import Chart
from kdaprof.report.pairs import Naming, Pair
from kdaprof.runs.units import format_fraction, format_ns

_OPACITY_REFUSED = 0.35


def split(pairs: Sequence[Pair], names: Naming) -> Chart | None:
    """None where no call was split. Bars whose idle is refused are pale."""
    told = [pair for pair in pairs if _number(pair, "idle_ns") is not None and _number(pair, "wall_ns")]
    told = [pair for pair in told if any(_number(pair, f"idle_{name}_ns") for name in IDLE)]
    if not told:
        return None
    labels = [safe(names.name(pair.key)) for pair in told]
    pale = [_OPACITY_REFUSED if _refused(pair) else 1.0 for pair in told]
    figure = blank(
        96 + 38 * len(told),
        barmode="stack",
        bargap=0.32,
        xaxis={"tickformat": ".0%", "range": [0, 1], "automargin": True},
        yaxis={"autorange": "reversed", "automargin": True},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    )
    for fact, title, colour in (("gpu_busy_ns", "GPU busy", BUSY), *((f"idle_{n}_ns", *IDLE[n]) for n in IDLE)):
        values = [_number(pair, fact) or 0.0 for pair in told]
        if not any(values):
            continue
        shares = [value / (_number(pair, "wall_ns") or 1.0) for value, pair in zip(values, told, strict=True)]
        figure.add_bar(
            y=labels,
            x=shares,
            name=title,
            orientation="h",
            marker={"color": colour, "opacity": pale, "line": {"width": 0}},
            text=[format_fraction(s) if s >= 0.06 and p == 1.0 else "" for s, p in zip(shares, pale, strict=True)],
            textposition="inside",
            insidetextanchor="middle",
            textfont={"size": 11},
            textangle=0,
            customdata=[f"{format_ns(v)}, {format_fraction(s)}" for v, s in zip(values, shares, strict=True)],
            hovertemplate=f"%{{y}}<br>{title} %{{customdata}} of the call<extra></extra>",
        )
    says = "; ".join(f"{names.name(pair.key)}: {_in_words(pair)}" for pair in told)
    return chart("split", "A call's time, by what the GPU and the host did", says, figure)


def _in_words(pair: Pair) -> str:
    wall = _number(pair, "wall_ns") or 1.0
    parts = [("busy", _number(pair, "gpu_busy_ns") or 0.0)]
    parts += [(IDLE[name][0], _number(pair, f"idle_{name}_ns") or 0.0) for name in IDLE]
    return ", ".join(f"{title} {format_fraction(value / wall)}" for title, value in parts if value)


def _refused(pair: Pair) -> bool:
    fact = pair.fact("eager", "idle_ns")
    return fact is not None and not fact.quotable


def _number(pair: Pair, name: str) -> float | None:
    fact = pair.fact("eager", name)
    return None if fact is None or fact.value is None else float(fact.value)
