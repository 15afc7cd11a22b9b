"""Walls of a sweep over the amount of work, with the lines through them, and what of each the GPU was busy."""

from __future__ import annotations

from kdaprof.analysis.step.fit import Fit, Point
from kdaprof.analysis.step.sweep import Sweep
from kdaprof.report.html.charts.base import PATH_COLOURS, blank, chart, safe, seconds, time_axis
from kdaprof.report.html.model import Chart
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_ns


def line(sweep: Sweep) -> Chart | None:
    """None where no wall was measured. Refused walls are hollow, refused lines dashed."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in sweep.points:
        if point.wall.value is not None:
            groups.setdefault((point.key.path, point.key.mode), []).append(point)
    if not groups:
        return None
    work = " · ".join(sweep.over)
    figure = blank(
        380,
        xaxis={"title": {"text": safe(work)}, "rangemode": "tozero", "automargin": True},
        yaxis=time_axis(rangemode="tozero"),
    )
    fits = {(fit.path, fit.mode): fit for fit in sweep.fits}
    for number, ((path, mode), points) in enumerate(groups.items()):
        name, colour = safe(f"{path} {mode}"), PATH_COLOURS[number % len(PATH_COLOURS)]
        _marks(figure, points, [point.wall for point in points], name, "wall", "circle", colour)
        _marks(figure, points, [point.busy for point in points], name, "GPU busy", "square", colour)
        fit = fits.get((path, mode))
        if fit is not None and fit.fixed.value is not None:
            _through(figure, fit, max(point.work for point in points), name, colour)
    says = "; ".join(
        f"{path} {mode}: " + ", ".join(f"{p.work} takes {format_ns(float(p.wall.value or 0))}" for p in points)
        for (path, mode), points in groups.items()
    )
    return chart("sweep", f"A step over {work}", says, figure)


def _marks(
    figure: object, points: list[Point], facts: list[Fact], name: str, what: str, symbol: str, colour: str
) -> None:
    told = [(point.work, fact) for point, fact in zip(points, facts, strict=True) if fact.value is not None]
    if not told:
        return
    values = [float(fact.value or 0) for _, fact in told]
    figure.add_scatter(  # type: ignore[attr-defined]  # plotly has no types
        x=[amount for amount, _ in told],
        y=seconds(values),
        name=f"{name} {what}",
        mode="markers",
        marker={
            "color": colour,
            "size": 11,
            "symbol": [symbol if fact.quotable else f"{symbol}-open" for _, fact in told],
            "line": {"width": 2, "color": colour},
        },
        opacity=1.0 if what == "wall" else 0.55,
        customdata=[format_ns(value) for value in values],
        hovertemplate=f"%{{x}}<br>{name} {what} %{{customdata}}<extra></extra>",
    )


def _through(figure: object, fit: Fit, most: int, name: str, colour: str) -> None:
    fixed, slope = float(fit.fixed.value or 0), float(fit.slope.value or 0)
    figure.add_scatter(  # type: ignore[attr-defined]
        x=[0, most],
        y=seconds([fixed, fixed + slope * most]),
        name=f"{name} line",
        mode="lines",
        line={"color": colour, "width": 2, "dash": "solid" if fit.fixed.quotable else "dash"},
        hoverinfo="skip",
    )
