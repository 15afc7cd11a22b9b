"""The roofline: each call by its operations a byte and the rate it reached, under the ceilings of this run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kdaprof.analysis.floor import COPY, compulsory_floor, intensity
from kdaprof.report.html.charts.base import FLOOR, SYMBOLS, blank, chart, palette, safe
from kdaprof.report.html.model import Chart, Subject
from kdaprof.report.pairs import Cell
from kdaprof.runs.record import Ceiling, Work
from kdaprof.runs.units import format_fraction, format_rate


@dataclass(frozen=True, slots=True)
class Point:
    """A cell under the roof: FLOP per compulsory byte, FLOP/s over its busy time, share of its own floor."""

    cell: Cell
    intensity: float
    rate: float
    share: float | None
    quotable: bool


def points(subject: Subject) -> tuple[Point, ...]:
    """Every eager cell whose work is known and whose busy time was measured."""
    found = []
    for cell in subject.scene.cells:
        work = work_of(cell)
        busy, share = cell.fact("gpu_busy_ns"), cell.fact("floor_share")
        if work is None or busy is None or not busy.value or cell.key.mode != "eager":
            continue
        per_byte = intensity(work.flops, work.bytes_compulsory)
        if per_byte is not None and work.flops:
            part = None if share is None or share.value is None else float(share.value)
            found.append(Point(cell, per_byte, work.flops / busy.value * 1e9, part, busy.quotable))
    return tuple(found)


def work_of(cell: Cell) -> Work | None:
    """Operations and bytes of a call; None where the workload does not say."""
    return cell.record.observed.work if cell.record.observed else None


def roofline(subject: Subject) -> Chart | None:
    """None where no ceiling or no work is known. Refused points are hollow."""
    found, names = points(subject), subject.scene.naming
    ceilings = {ceiling.name: ceiling for ceiling in subject.scene.record.ceilings if ceiling.value > 0}
    if not found or COPY not in ceilings:
        return None
    used = {work.rate for point in found if (work := work_of(point.cell)) and work.rate in ceilings}
    copy = ceilings[COPY]
    low, high = _span([p.intensity for p in found] + [ceilings[name].value / copy.value for name in used])
    floor_rate = min([p.rate for p in found] + [copy.value * low]) / 2
    figure = blank(
        460,
        margin={"l": 72, "r": 20, "t": 36, "b": 52},
        xaxis={"type": "log", "title": {"text": "operations per compulsory byte (FLOP/B)"}, "dtick": 1},
        yaxis={"type": "log", "title": {"text": "rate while busy"}, "tickformat": "~s", "ticksuffix": "FLOP/s"},
    )
    figure.update_xaxes(range=[math.log10(low), math.log10(high)])
    tallest = max((ceilings[name].value for name in used), default=copy.value * high)
    figure.update_yaxes(range=[math.log10(floor_rate), math.log10(tallest * 2.5)], automargin=True)
    for name in sorted(used, key=lambda one: -ceilings[one].value):
        _roof(figure, ceilings[name], copy, low, high)
    colours = palette([p.cell.key.path for p in found])
    for point in found:
        key = point.cell.key
        symbol = SYMBOLS.get(key.phase, "circle")
        beside = f", {format_fraction(point.share)} of its floor" if point.share is not None else ""
        figure.add_scatter(
            x=[point.intensity],
            y=[point.rate],
            mode="markers",
            marker={
                "symbol": symbol if point.quotable else f"{symbol}-open",
                "size": 12,
                "color": colours[key.path],
                "line": {"width": 2, "color": colours[key.path]},
            },
            name=safe(names.name(key)),
            hovertemplate=f"{safe(names.name(key))}<br>{format_rate(point.rate, 'FLOP/s')}{beside}<extra></extra>",
        )
    says = "; ".join(
        f"{names.name(p.cell.key)}: {format_rate(p.rate, 'FLOP/s')} at {p.intensity:.3g} FLOP/B" for p in found
    )
    return chart("roofline", "Rate reached while busy, under this card's own ceilings", says, figure)


def _roof(figure: object, rate: Ceiling, copy: Ceiling, low: float, high: float) -> None:
    ridge = rate.value / copy.value
    xs = [low, min(max(ridge, low), high), high]
    ys = [min(x * copy.value, rate.value) for x in xs]
    text = f"{rate.name}: {format_rate(rate.value, rate.unit)} ({rate.provenance})"
    figure.add_scatter(  # type: ignore[attr-defined]
        x=xs, y=ys, mode="lines", line={"color": FLOOR, "width": 2, "dash": _dash(rate)}, name=safe(text),
        hovertemplate=f"{safe(text)}<br>copy {format_rate(copy.value, copy.unit)}<extra></extra>", showlegend=False,
    )  # fmt: skip
    figure.add_annotation(  # type: ignore[attr-defined]
        x=math.log10(high), y=math.log10(rate.value), text=safe(text), showarrow=False, xanchor="right",
        yanchor="bottom", font={"size": 11},
    )  # fmt: skip


def _dash(rate: Ceiling) -> str:
    return {"measured": "solid", "derived": "dash", "declared": "dot"}[rate.provenance]


def _span(values: list[float]) -> tuple[float, float]:
    """Whole decades around the values, so that the slope of the roof is seen on both sides."""
    return 10 ** math.floor(math.log10(min(values)) - 0.5), 10 ** math.ceil(math.log10(max(values)) + 0.5)


def bound_of(subject: Subject, cell: Cell) -> str:
    """`memory` or `compute`: which side of the roof binds this cell; why not, where that cannot be said."""
    work = work_of(cell)
    floor = compulsory_floor(work, subject.scene.record.ceilings) if work else "work not known"
    return floor if isinstance(floor, str) else floor.bound
