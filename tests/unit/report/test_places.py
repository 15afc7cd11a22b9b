"""Two findings of one run never read alike: whatever differs between cells is said, in the text or before it."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import paper_runs
import pytest
from rich.console import Console

from kdaprof.analysis.findings.figures import name_of
from kdaprof.analysis.view import CellView, WarmUp
from kdaprof.report.markdown import render
from kdaprof.report.pairs import cells_of, naming, pairs_of
from kdaprof.report.places import place_of
from kdaprof.report.scene import Scene
from kdaprof.report.terminal import show_run
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.results import Evidence, Finding, RunResults

BASE = CellKey("step", "fused", "plain", "eager", "step", make_shape("step", (8, 512, 4)), "float32")
WIDE = replace(BASE, shape=make_shape("step", (16, 512, 4)))


def told(key: CellKey) -> Finding:
    """What a rule says of the cell, with the name that rules give it."""
    cell = CellRecord(key=key, status="ok")
    view = CellView(
        run=paper_runs.record((cell,)),
        cell=cell,
        samples=(),
        warmup=WarmUp(steady_from=0, change_points=(), n=0),
        kernels=(),
        facts={},
        evidence=Evidence(verdict="none", expected=key.path, witnesses=()),
    )
    return Finding(id="cold-start", severity="warn", cell=key.id, text=f"{name_of(view)}: slow at first")


def run_of(*keys: CellKey) -> tuple[RunRecord, RunResults]:
    record = paper_runs.record(tuple(CellRecord(key=key, status="ok") for key in keys))
    return record, RunResults(run=paper_runs.RUN, cells=(), findings=tuple(map(told, keys)))


def scene_of(*keys: CellKey) -> Scene:
    record, results = run_of(*keys)
    cells = cells_of(record, results)
    return Scene(record, results, cells, pairs_of(cells), naming(cells))


@pytest.mark.parametrize(
    ("other", "places"),
    [
        (WIDE, ["B 8, T 512, iters 4", "B 16, T 512, iters 4"]),
        (replace(BASE, dtype="bfloat16"), ["float32", "bfloat16"]),
        (replace(BASE, workload="mine"), ["step", "mine"]),
        (replace(WIDE, dtype="bfloat16"), ["B 8, T 512, iters 4 float32", "B 16, T 512, iters 4 bfloat16"]),
        # These the text says itself.
        (replace(BASE, context="checkpoint"), [None, None]),
        (replace(BASE, mode="graph"), [None, None]),
        (replace(BASE, phase="fwd"), [None, None]),
        (replace(BASE, path="tensor"), [None, None]),
    ],
)
def test_what_differs_is_said_and_nothing_else(other: CellKey, places: list[str | None]) -> None:
    scene = scene_of(BASE, other)
    found = scene.results.findings
    assert [place_of(finding, scene) for finding in found] == places
    assert len({(finding.text, place_of(finding, scene)) for finding in found}) == 2


def test_a_text_without_the_cells_name_gets_all_of_it() -> None:
    scene = scene_of(BASE, replace(WIDE, mode="graph"))
    finding = replace(scene.results.findings[1], text="the graph needs more memory")
    assert place_of(finding, scene) == "fused step B 16, T 512, iters 4 graph"
    assert place_of(replace(finding, cell=None), scene) is None
    assert place_of(replace(finding, cell="of/another/run"), scene) == "of/another/run"


def test_the_shape_stands_on_the_page_and_on_the_terminal() -> None:
    run = run_of(BASE, WIDE)
    assert "`cold-start` · B 16, T 512, iters 4: fused step: slow at first" in render(*run)
    shown = StringIO()
    show_run(Console(width=200, file=shown), *run)
    assert "cold-start (B 16, T 512, iters 4): fused step: slow at first" in shown.getvalue()
