"""Figures of one run: the charts of the HTML report, each by itself."""

from __future__ import annotations

from typing import Any

from kdaprof.analysis.frames import LoadedRun
from kdaprof.errors import UsageError
from kdaprof.report.html.charts.ladder import ladder as ladder_chart
from kdaprof.report.html.charts.series import series as samples_chart
from kdaprof.report.html.charts.split import split as split_chart
from kdaprof.report.html.model import Chart, Subject
from kdaprof.report.pairs import cells_of, naming, pairs_of
from kdaprof.report.scene import Scene


def samples(run: LoadedRun) -> Any:
    """Wall of every unprofiled call against its index, from step 0, the cold part shaded; a panel a cell.

    UsageError for a run without samples.
    """
    return _figure(samples_chart(Subject(run.raw, _scene(run))), run, "no samples")


def split(run: LoadedRun) -> Any:
    """Where a call's time goes: GPU busy and the classes of idle as shares of the wall, a bar a cell.

    UsageError for a run in which no call was split.
    """
    scene = _scene(run)
    return _figure(split_chart(scene.pairs, scene.naming), run, "no call that was split into busy and idle")


def ladder(run: LoadedRun) -> Any:
    """Eager wall → graph wall → busy → floor, a line a cell. UsageError for a run without two of them."""
    scene = _scene(run)
    return _figure(ladder_chart(scene.pairs, scene.naming), run, "no cell with two of wall, graph, busy and floor")


def _scene(run: LoadedRun) -> Scene:
    cells = cells_of(run.raw.record, run.results)
    return Scene(run.raw.record, run.results, cells, pairs_of(cells), naming(cells))


def _figure(chart: Chart | None, run: LoadedRun, lack: str) -> Any:
    if chart is None:
        raise UsageError(f"{run.path}: holds {lack}")
    from plotly.io import from_json  # noqa: PLC0415 - half a second that only a drawing needs

    return from_json(chart.figure).update_layout(title={"text": chart.title, "y": 0.99}, margin={"t": 84})
