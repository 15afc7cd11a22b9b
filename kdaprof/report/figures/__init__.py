"""Plotly figures as functions: of a run that `kdaprof.load` opened, of a comparison, of the history.

Each returns a `plotly.graph_objects.Figure`, to be shown in a notebook or put on a page with `page`.
"""

from __future__ import annotations

from kdaprof.report.figures.of_runs import ladder, samples, split
from kdaprof.report.figures.over_time import history_figure
from kdaprof.report.figures.page import page
from kdaprof.report.figures.ratios import Bar, ratio_bars, ratios

__all__ = ["Bar", "history_figure", "ladder", "page", "ratio_bars", "ratios", "samples", "split"]
