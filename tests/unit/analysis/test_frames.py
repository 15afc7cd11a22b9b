"""`kdaprof.load`: the frames hold what the run holds, neither more nor less."""

from __future__ import annotations

from pathlib import Path

import pytest

import kdaprof
from kdaprof.analysis.frames import LoadedRun
from kdaprof.errors import BadFileError, UsageError
from kdaprof.runs.retractions import Retraction, add_retraction

RUN = Path(__file__).parents[3] / "reports" / "h200-kda"
FUSED = "fused/plain/eager/fwd"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    return kdaprof.load(RUN, store=tmp_path_factory.mktemp("store"))  # type: ignore[operator, no-any-return]


def test_every_sample_and_its_cell(run: LoadedRun) -> None:
    frame = run.samples
    assert len(frame) == sum(map(len, run.raw.samples.values()))
    assert str(frame["wall_ns"].dtype) == "Int64"
    cell = next(cell for cell in frame["cell"].unique() if f"/{FUSED}/" in cell)
    mine = frame[(frame["cell"] == cell) & (frame["repeat"] == "unprofiled") & (frame["round"] >= 0)]
    fact = run.facts.set_index(["cell", "fact"]).loc[(cell, "wall_ns")]
    assert mine[mine["steady"]]["wall_ns"].median() == pytest.approx(fact["value"], abs=1)
    assert not frame[frame["repeat"] == "unprofiled"]["steady"].isna().any()
    assert frame[frame["repeat"] != "unprofiled"]["steady"].isna().all()


def test_every_figure_with_what_refuses_it(run: LoadedRun) -> None:
    frame = run.facts
    assert len(frame) == sum(len(cell.facts) for cell in run.results.cells)
    assert frame["value"].isna().equals(frame["missing"].notna())
    refused = frame[frame["value"].notna() & ~frame["quotable"]]
    assert (refused["refused_by"] != "").all()
    assert (frame[frame["quotable"]]["refused_by"] == "").all()


def test_cells_and_findings(run: LoadedRun) -> None:
    assert list(run.cells["cell"]) == [cell.id for cell in run.raw.record.cells]
    fused = run.cells.set_index("cell").filter(like=f"{FUSED}/", axis="index").iloc[0]
    assert (fused["status"], fused["evidence"]) == ("ok", "confirmed")
    assert list(run.findings["id"]) == [finding.id for finding in run.results.findings]


@pytest.mark.parametrize("kind", ["cuda", "full"])
def test_a_timeline_by_part_of_its_cell(run: LoadedRun, kind: str) -> None:
    frame = run.timeline(FUSED, kind)
    assert {"kind", "name", "start_ns", "end_ns", "stream"} <= set(frame)
    assert len(frame) == len(run.recording(FUSED, kind))
    kernels = frame[frame["kind"] == "kernel"]
    assert kernels["name"].str.contains("kdaprof_kda").any()
    assert (kernels["end_ns"] > kernels["start_ns"]).all()


@pytest.mark.parametrize(
    ("cell", "kind", "says"),
    [
        ("eager", "full", "fits [0-9]+ cells"),
        ("fuse/plain", "full", "there are: .*fused"),
        (FUSED, "cpu", "cuda, full"),
    ],
)
def test_what_there_is_is_named(run: LoadedRun, cell: str, kind: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run.timeline(cell, kind)


def test_what_was_retracted_is_marked(tmp_path: Path, run: LoadedRun) -> None:
    add_retraction(tmp_path, Retraction(target=run.id, why="a test", retracted_unix_ns=0))
    frame = kdaprof.load(RUN, store=tmp_path).facts  # type: ignore[operator]
    assert not frame["quotable"].any()
    assert frame[frame["value"].notna()]["refused_by"].str.startswith("retracted").all()


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="no such run directory"):
        kdaprof.load(tmp_path / "none")  # type: ignore[operator]
