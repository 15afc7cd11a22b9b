"""Sampled utilisation as a histogram over time, with the device-busy share of one call marked in it."""

from __future__ import annotations

import numpy as np

from kdaprof.analysis.celldata import gather
from kdaprof.analysis.util_readings import Readings, mean, readings_of
from kdaprof.report.html.charts.base import BUSY, GPM, blank, chart, safe
from kdaprof.report.html.charts.panels import Panels
from kdaprof.report.html.model import Chart, Subject
from kdaprof.report.pairs import Cell
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_fraction

_BIN = 0.05


def utilisation(subject: Subject) -> Chart | None:
    """A panel a cell that ran in a loop while NVML was read; None without any. A reading counts by its time."""
    read: list[tuple[Cell, Readings]] = []
    for cell in subject.scene.cells:
        seen = readings_of(gather(subject.raw, cell.record).utilisation())
        if seen.value.size:
            read.append((cell, seen))
    if not read:
        return None
    names = subject.scene.naming
    panels = Panels.of([names.name(cell.key) for cell, _ in read], columns=2)
    figure = blank(panels.height(150), margin={"l": 56, "r": 12, "t": 52, "b": 40}, bargap=0.06, barmode="overlay")
    figure.update_layout(
        **panels.layout(
            x={"tickformat": ".0%", "range": [0, 1.0]}, y={"ticksuffix": "", "tickformat": ".0%", "nticks": 4}
        )
    )
    said = []
    for number, (cell, seen) in enumerate(read):
        axes = panels.axes(number)
        shares = seen.held_ns / seen.held_ns.sum()
        figure.add_histogram(
            x=seen.value.tolist(),
            y=shares.tolist(),
            histfunc="sum",
            xbins={"start": 0.0, "end": 1.0 + _BIN, "size": _BIN},
            autobinx=False,
            marker={"color": GPM},
            name="NVML readings",
            showlegend=number == 0,
            hovertemplate="%{y:.0%} of the time at %{x}<extra></extra>",
            **axes,
        )
        busy = _busy_share(cell.fact("host_bound"))
        if busy is not None:
            figure.add_scatter(
                x=[busy, busy],
                y=[0, _tallest(seen)],
                mode="lines",
                line={"color": BUSY, "width": 3},
                name="busy / wall of one call",
                showlegend=number == 0,
                hovertemplate=f"busy / wall {format_fraction(busy)}<extra></extra>",
                **axes,
            )
            said.append(
                f"{names.name(cell.key)}: sampled {format_fraction(mean(seen))} on average "
                f"({seen.value.size} readings), busy {format_fraction(busy)} of a call"
            )
    for title in panels.titles(safe):
        figure.add_annotation(**title)
    return chart("utilisation", "NVML's utilisation while the call runs in a loop", "; ".join(said), figure)


def _busy_share(host_bound: Fact | None) -> float | None:
    return None if host_bound is None or host_bound.value is None else 1 - float(host_bound.value)


def _tallest(seen: Readings) -> float:
    places = (seen.value / _BIN + 1e-9).astype(int)
    return float(np.bincount(places, weights=seen.held_ns / seen.held_ns.sum()).max())
