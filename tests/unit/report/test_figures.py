"""Figures as functions: they draw what the run holds, and the page works by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kdaprof.analysis.compare import Side, compare_runs
from kdaprof.analysis.frames import LoadedRun, load
from kdaprof.errors import UsageError
from kdaprof.report import figures
from kdaprof.report.pairs import cells_of, naming

RUN = Path(__file__).parents[3] / "reports" / "h200-kda"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    return load(RUN, store=tmp_path_factory.mktemp("store"))


def test_each_figure_of_a_run_shows_each_cell_that_it_can(run: LoadedRun) -> None:
    cells = cells_of(run.raw.record, run.results)
    names = {naming(cells).name(cell.key) for cell in cells if cell.record.status == "ok"}
    assert {a.text.removeprefix("<b>").removesuffix("</b>") for a in figures.samples(run).layout.annotations} >= names
    assert names >= set(figures.split(run).data[0].y) > set()
    assert names >= {name for trace in figures.ladder(run).data for name in trace.y} > set()


def test_ratios_stand_in_the_order_of_the_comparison(run: LoadedRun) -> None:
    side = Side(raw=run.raw, results=run.results)
    found = compare_runs(side, side)
    figure = figures.ratios(found)
    drawn = [name for trace in figure.data for name in trace.y or ()]
    told = [f"{row.cell} {row.fact}" for row in found.rows if row.ratio is not None]
    assert sorted(drawn) == sorted(told)
    assert list(figure.layout.yaxis.categoryarray) == told
    assert {x for trace in figure.data for x in trace.x or ()} == {1.0}


def test_a_run_without_cells_says_what_it_lacks(run: LoadedRun) -> None:
    record = replace(run.raw.record, cells=())
    empty = replace(run, raw=replace(run.raw, record=record), results=replace(run.results, cells=()))
    for draw in (figures.samples, figures.split, figures.ladder):
        with pytest.raises(UsageError, match="holds no "):
            draw(empty)


def test_the_page_has_the_script_once_and_escapes_its_title(run: LoadedRun) -> None:
    text = figures.page([figures.split(run), figures.ladder(run)], title="a <b> & c")
    assert text == figures.page([figures.split(run), figures.ladder(run)], title="a <b> & c")
    assert "<h1>a &lt;b&gt; &amp; c</h1>" in text
    assert "<script src" not in text
    assert [text.count(f'id="figure-{number}"') for number in (0, 1)] == [1, 1]
    assert len(text) < 6_000_000
