"""Calls that share a table on a terminal: phases of one call, or sizes where there is one phase."""

from __future__ import annotations

from dataclasses import replace

import paper_runs
import pytest

from kdaprof.report.groups import groups_of
from kdaprof.report.pairs import cells_of, naming, pairs_of
from kdaprof.report.scene import Scene
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.record import CellRecord
from kdaprof.runs.results import RunResults

BASE = CellKey("step", "fused", "plain", "eager", "step", make_shape("step", (8, 512, 4)), "float32")
WIDE = replace(BASE, shape=make_shape("step", (16, 512, 4)))
LONG = replace(BASE, shape=make_shape("step", (8, 1024, 4)))
OTHER = replace(BASE, shape=(("rows", 3),))


def told(*keys: CellKey) -> list[tuple[str, tuple[str, ...]]]:
    record = paper_runs.record(tuple(CellRecord(key=key, status="ok") for key in keys))
    results = RunResults(run=paper_runs.RUN, cells=(), findings=())
    cells = cells_of(record, results)
    scene = Scene(record, results, cells, pairs_of(cells), naming(cells))
    groups = groups_of(scene, scene.pairs)
    assert [pair for group in groups for pair in group.pairs] == list(scene.pairs)
    return [(group.name, group.across) for group in groups]


@pytest.mark.parametrize(
    ("keys", "groups"),
    [
        ((BASE, replace(BASE, phase="fwd")), [("fused", ("step", "fwd"))]),
        ((BASE, WIDE), [("fused step, T 512, iters 4", ("B 8", "B 16"))]),
        ((BASE, WIDE, LONG), [("fused step, iters 4", ("B 8, T 512", "B 16, T 512", "B 8, T 1024"))]),
        # What differs in the run is said of each path, also of one that has a single size.
        (
            (BASE, WIDE, replace(BASE, path="tensor")),
            [("fused step, T 512, iters 4", ("B 8", "B 16")), ("tensor step, T 512, iters 4", ("B 8",))],
        ),
        ((BASE, OTHER), [("fused step", ("B 8, T 512, iters 4", "rows 3"))]),
        # A second phase: a table a size.
        (
            (BASE, replace(BASE, phase="fwd"), WIDE),
            [("fused B 8, T 512, iters 4", ("step", "fwd")), ("fused B 16, T 512, iters 4", ("step",))],
        ),
        ((BASE,), [("fused", ("step",))]),
    ],
)
def test_one_table_for_what_is_alike(keys: tuple[CellKey, ...], groups: list[tuple[str, tuple[str, ...]]]) -> None:
    assert told(*keys) == groups


def test_no_call_no_table() -> None:
    assert told() == []
