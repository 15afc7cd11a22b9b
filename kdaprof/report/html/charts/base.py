"""What all charts of the page share: colours with one meaning each, quiet axes, and the same bytes for the same run.

Backgrounds are transparent and text takes the page's colour when the browser draws it, so that one figure serves
light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from kdaprof.report.html.model import Chart
from kdaprof.runs.units import format_ns

BUSY = "#2f9e44"
WALL = "#495fd6"
GRAPH = "#0c8599"
FLOOR = "#868e96"
GPM = "#74a9d8"
COLD = "rgba(240, 140, 0, 0.16)"
GREY = "#868e96"

# The class of idle → its name and colour: reds are the host's own work, blues the device's order, greys neither.
IDLE: dict[str, tuple[str, str]] = {
    "sync": ("sync", "#7048e8"),
    "allocator": ("allocator", "#c2255c"),
    "jit": ("jit", "#a0522d"),
    "dispatch": ("dispatch", "#e03131"),
    "host_other": ("host, other", "#f76707"),
    "launch_call": ("launch call", "#f2b10c"),
    "launch_latency": ("launch latency", "#74a9d8"),
    "device_wait": ("device wait", "#1c6fbf"),
    "graph_gap": ("graph gap", "#15aabf"),
    "no_launch_record": ("no launch record", "#868e96"),
    "unclassified": ("unclassified", "#adb5bd"),
    "drain": ("drain", "#b5a38c"),
}
PATH_COLOURS = ("#495fd6", "#d9480f", "#0c8599", "#9c36b5", "#5c940d", "#c2255c", "#846358")
SYMBOLS = {"fwd": "circle", "bwd": "square", "fwdbwd": "diamond"}

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"


def blank(height: int, **layout: Any) -> Any:
    """An empty plotly figure in the page's style; `layout` is plotly's."""
    import plotly.graph_objects as go  # noqa: PLC0415 - half a second that only a page needs

    base: dict[str, Any] = {
        "template": go.layout.Template(),
        "height": height,
        "margin": {"l": 64, "r": 16, "t": 28, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": _FONT, "size": 12.5},
        "hoverlabel": {"font": {"family": _FONT, "size": 12.5}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom"},
        "hovermode": "closest",
        # Plotly's own choice beside a transparent page is a grey box over the legend.
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": WALL},
    }
    return go.Figure(layout=base | layout)


def chart(name: str, title: str, says: str, figure: Any) -> Chart:
    """A finished chart: its JSON is the same for the same run."""
    return Chart(
        f"{name}-chart", title, says, figure.to_json(remove_uids=True, engine="json"), int(figure.layout.height)
    )


def safe(text: str) -> str:
    """Text for plotly, which reads a little HTML in labels: nothing in it is markup."""
    return escape(text, quote=False)


def seconds(values: Iterable[float | int | None]) -> list[float | None]:
    """Nanoseconds as seconds, which plotly writes as µs and ms."""
    return [None if value is None else value / 1e9 for value in values]


def time_axis(**more: Any) -> dict[str, Any]:
    """An axis of seconds with SI prefixes: `200 µs`, `5 ms`."""
    return {"tickformat": "~s", "ticksuffix": "s", "exponentformat": "SI", "automargin": True, **more}


def log_time_axis(values: Iterable[float | None], *, each: Sequence[int] = (1, 2, 5), **more: Any) -> dict[str, Any]:
    """A logarithmic axis of seconds with round marks over the values' decades, every mark with its unit."""
    real = [value for value in values if value]
    low = math.floor(math.log10(min(real))) if real else -6
    high = math.ceil(math.log10(max(real))) if real else 0
    marks = [factor * 10.0**power for power in range(low, high + 1) for factor in each]
    return {"type": "log", **_ticks(marks), "automargin": True, **more}


def narrow_time_axis(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis with two marks or more inside the values' own range: decades, or 1, 2, 5, or its two ends."""
    low, high = min(values), max(values)
    for each in ((1,), (1, 2, 5)):
        axis = log_time_axis(values, each=each)
        inside = [mark for mark in axis["tickvals"] if low <= mark <= high]
        if len(inside) > 1:
            return axis
    return {**axis, **_ticks(sorted({low, high}))}


def _ticks(marks: Sequence[float]) -> dict[str, Any]:
    texts = [f"{float(number):.4g} {unit}" for number, unit in (format_ns(mark * 1e9).split() for mark in marks)]
    return {"tickvals": list(marks), "ticktext": texts}


def palette(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name in order of first appearance."""
    return {name: PATH_COLOURS[i % len(PATH_COLOURS)] for i, name in enumerate(dict.fromkeys(names))}
