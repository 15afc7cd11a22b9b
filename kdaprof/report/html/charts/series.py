"""Every unprofiled sample by index, from step 0: the cold part shaded, change points dotted. A panel a cell."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.analysis.celldata import CellData, gather
from kdaprof.report.html.charts.base import COLD, GRAPH, GREY, WALL, blank, chart, narrow_time_axis, safe, seconds
from kdaprof.report.html.charts.panels import Panels
from kdaprof.report.html.model import Chart, Subject
from kdaprof.report.pairs import Pair

MOST_PANELS = 24
MOST_SAMPLES = 2000
"""Of one series: a longer one is thinned evenly, the cold part excepted."""

MOST_CHANGES = 20
"""Change points drawn in a panel."""

_MODES = (("eager", WALL), ("graph", GRAPH))


def series(subject: Subject) -> Chart | None:
    """None without samples. Logarithmic, since a first call may take a thousand times a warm one."""
    pairs = [pair for pair in subject.scene.pairs if _walls(subject, pair)][:MOST_PANELS]
    if not pairs:
        return None
    names = subject.scene.naming
    panels = Panels.of([names.name(pair.key) for pair in pairs], columns=3)
    figure = blank(panels.height(168), margin={"l": 56, "r": 12, "t": 56, "b": 40})
    figure.update_layout(**panels.layout(x={"rangemode": "tozero"}, y={}))
    said = []
    for number, pair in enumerate(pairs):
        axes = panels.axes(number)
        figure.update_layout({axes["yaxis"].replace("y", "yaxis"): narrow_time_axis(_walls(subject, pair))})
        for mode, colour in _MODES:
            cell = pair.graph if mode == "graph" else pair.eager
            if cell is None:
                continue
            data = gather(subject.raw, cell.record)
            shown = _samples(data)
            if not shown:
                continue
            figure.add_scatter(
                x=[index for index, _ in shown],
                y=seconds(wall for _, wall in shown),
                mode="markers",
                marker={"size": 4, "color": colour, "opacity": 0.75},
                name=mode,
                legendgroup=mode,
                cliponaxis=False,  # step 0 lies on the edge
                showlegend=not any(trace.name == mode for trace in figure.data),
                hovertemplate=f"{mode}, sample %{{x}}<br>wall %{{y:.3s}}s<extra></extra>",
                **axes,
            )
            if mode == "eager":
                said.append(f"{names.name(pair.key)}: {data.warmup.detail}")
                _shade(figure, data, shown[-1][0], axes)
    for title in panels.titles(safe):
        figure.add_annotation(**title)
    return chart("samples", "Wall of each unprofiled call, in the order of execution", "; ".join(said), figure)


def _shade(figure: object, data: CellData, last: int, axes: dict[str, str]) -> None:
    steady = data.warmup.steady_from
    end = last if steady is None else steady
    refs = {"xref": axes["xaxis"], "yref": f"{axes['yaxis']} domain"}
    for index in data.warmup.change_points[:MOST_CHANGES]:
        line = {"width": 1, "dash": "dot", "color": GREY}
        figure.add_shape(  # type: ignore[attr-defined]
            type="line", x0=index - 0.5, x1=index - 0.5, y0=0, y1=1, line=line, layer="below", **refs
        )
    if not end:
        return
    figure.add_shape(  # type: ignore[attr-defined]
        type="rect", x0=-0.5, x1=end - 0.5, y0=0, y1=1, fillcolor=COLD, line={"width": 0}, layer="below", **refs
    )
    if steady is None:
        figure.add_annotation(  # type: ignore[attr-defined]
            x=0.98, y=0.96, text="no steady state", showarrow=False, xanchor="right", yanchor="top",
            font={"size": 11, "color": GREY}, xref=f"{axes['xaxis']} domain", yref=f"{axes['yaxis']} domain",
        )  # fmt: skip


def _samples(data: CellData) -> Sequence[tuple[int, int]]:
    found = sorted((s.index, s.wall_ns) for s in data.of("unprofiled") if s.wall_ns)
    if len(found) <= MOST_SAMPLES:
        return found
    cold = data.warmup.steady_from or 0
    step = -(-len(found) // MOST_SAMPLES)
    return [pair for i, pair in enumerate(found) if pair[0] < min(cold, MOST_SAMPLES) or i % step == 0]


def _walls(subject: Subject, pair: Pair) -> list[float]:
    """Seconds, of both modes; none of an op's calls inside a step, which have no wall, and then there is no panel."""
    cells = [cell for cell in (pair.eager, pair.graph) if cell is not None and cell.record.status == "ok"]
    found = [sample for cell in cells for sample in subject.raw.samples.get(cell.record.id, ())]
    return [s.wall_ns / 1e9 for s in found if s.repeat == "unprofiled" and s.wall_ns]
