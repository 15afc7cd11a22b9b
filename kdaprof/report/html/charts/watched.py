"""Sampled utilisation as a histogram, with the device-busy share of one call marked in it."""

from __future__ import annotations

from kdaprof.analysis.celldata import gather
from kdaprof.report.html.charts.base import BUSY, GPM, blank, chart, safe
from kdaprof.report.html.charts.panels import Panels
from kdaprof.report.html.model import Chart, Subject
from kdaprof.report.pairs import Cell
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_fraction

_BIN = 0.05


def utilisation(subject: Subject) -> Chart | None:
    """A panel a cell that ran in a loop while NVML was read; None without any. Stale readings are left out."""
    read: list[tuple[Cell, list[float]]] = []
    for cell in subject.scene.cells:
        values = [
            reading.value
            for reading in gather(subject.raw, cell.record).util
            if reading.field == "util" and reading.value is not None and not reading.stale
        ]
        if values:
            read.append((cell, values))
    if not read:
        return None
    names = subject.scene.naming
    panels = Panels.of([names.name(cell.key) for cell, _ in read], columns=2)
    figure = blank(panels.height(150), margin={"l": 56, "r": 12, "t": 52, "b": 40}, bargap=0.06, barmode="overlay")
    figure.update_layout(**panels.layout(x={"tickformat": ".0%", "range": [0, 1.0]}, y={"ticksuffix": "", "nticks": 4}))
    said = []
    for number, (cell, values) in enumerate(read):
        axes = panels.axes(number)
        figure.add_histogram(
            x=values,
            xbins={"start": 0.0, "end": 1.0 + _BIN, "size": _BIN},
            autobinx=False,
            marker={"color": GPM},
            name="NVML readings",
            showlegend=number == 0,
            hovertemplate="%{y} readings at %{x}<extra></extra>",
            **axes,
        )
        busy = _busy_share(cell.fact("host_bound"))
        if busy is not None:
            figure.add_scatter(
                x=[busy, busy],
                y=[0, _tallest(values)],
                mode="lines",
                line={"color": BUSY, "width": 3},
                name="busy / wall of one call",
                showlegend=number == 0,
                hovertemplate=f"busy / wall {format_fraction(busy)}<extra></extra>",
                **axes,
            )
            mean = sum(values) / len(values)
            said.append(
                f"{names.name(cell.key)}: sampled {format_fraction(mean)} on average over {len(values)} readings, "
                f"busy {format_fraction(busy)} of a call"
            )
    for title in panels.titles(safe):
        figure.add_annotation(**title)
    return chart("utilisation", "NVML's utilisation while the call runs in a loop", "; ".join(said), figure)


def _busy_share(host_bound: Fact | None) -> float | None:
    return None if host_bound is None or host_bound.value is None else 1 - float(host_bound.value)


def _tallest(values: list[float]) -> int:
    counts: dict[int, int] = {}
    for value in values:
        place = int(value / _BIN + 1e-9)
        counts[place] = counts.get(place, 0) + 1
    return max(counts.values())
