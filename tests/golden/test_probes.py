"""Every probe is run, on the CPU at a tiny size: it ends with a run that reads back, of what its question names."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kdaprof.errors import Exit
from kdaprof.probe import real
from kdaprof.runs.record import RunRecord
from kdaprof.runs.store import read_run

PROBES = Path(__file__).parents[2] / "probes"
ONCE = ("--device", "cpu", "--rounds", "1", "--samples", "1")
OP = (*ONCE, "--shape", "1,16,1,16,16")
SWEEP = (*ONCE, "--path", "tensor")
TYPED = {
    # The paths are ours that need no Triton interpreter, whose start alone takes seconds.
    "kda_paths": (*OP, "--path", "tensor", "--contexts", "plain,checkpoint,partial-grad"),
    "cuda_graph": (*OP, "--paths", "tensor,reference"),
    "cold_start": (*OP, "--paths", "tensor"),
    "peers": (*OP, "--paths", "tensor,fla,flashkda"),
    "allocator_growth": (*ONCE, "--paths", "tensor", "--batch", "1", "--seq", "8", "--max-iter", "1"),
    "batch_sweep": (*SWEEP, "--over", "batch=1,2"),
    "depth_sweep": (*SWEEP, "--over", "max_iter=1,2"),
}


Run = Callable[[str], RunRecord]


@pytest.fixture
def run_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a script as `python probes/NAME.py … --out RUN` does, without the start of another Python."""
    monkeypatch.setattr(real, "BUSY_WINDOW_NS", 0)
    monkeypatch.syspath_prepend(str(PROBES))
    monkeypatch.chdir(tmp_path)

    def run(name: str) -> RunRecord:
        script, out = PROBES / f"{name}.py", tmp_path / "run"
        monkeypatch.setattr(sys, "argv", [str(script), *TYPED[name], "--out", str(out)])
        with pytest.raises(SystemExit) as left:
            runpy.run_path(str(script), run_name="__main__")
        # On a CPU no wall may enter a fit (Q08): a sweep is inconclusive.
        assert left.value.code == (Exit.INCONCLUSIVE if "--over" in TYPED[name] else Exit.OK)
        return read_run(out).record

    return run


def ended(record: RunRecord, path: str, mode: str = "eager") -> set[str]:
    """How the cells of a path and mode ended, each with its reason."""
    cells = [cell for cell in record.cells if (cell.key.path, cell.key.mode) == (path, mode)]
    return {cell.status if cell.error is None else f"{cell.status}: {cell.error.text}" for cell in cells}


def test_kda_paths_has_a_cell_a_context_with_what_the_gate_saw(run_probe: Run) -> None:
    record = run_probe("kda_paths")
    assert {cell.key.context for cell in record.cells} == {"plain", "checkpoint", "partial-grad"}
    assert {cell.key.phase for cell in record.cells} == {"fwdbwd"}
    for cell in record.cells:
        assert cell.observed is not None
        assert cell.observed.gate is not None
        assert set(cell.observed.gate.forward) == set(cell.observed.gate.backward) == {"tensor"}


def test_cuda_graph_has_both_modes_of_each_phase(run_probe: Run) -> None:
    record = run_probe("cuda_graph")
    assert {(cell.key.phase, cell.key.mode) for cell in record.cells} == {
        (phase, mode) for phase in ("fwd", "fwdbwd") for mode in ("eager", "graph")
    }
    assert ended(record, "tensor") == {"ok"}
    assert ended(record, "tensor", "graph") == {"unavailable: CUDA Graphs need a CUDA device"}


def test_cold_start_says_why_there_is_none_without_a_gpu(run_probe: Run) -> None:
    (cell,) = run_probe("cold_start").cells
    assert cell.observed is not None
    assert cell.observed.missing["cold_ns"].startswith("no GPU: ")


def test_peers_are_measured_or_absent_with_the_reason(run_probe: Run) -> None:
    record = run_probe("peers")
    assert ended(record, "tensor") == {"ok"}
    for path, more in (("fla", set()), ("flashkda", {"unavailable: path 'flashkda' has no backward"})):
        (absent,) = ended(record, path) - more
        assert absent.startswith("unavailable: ")
        assert "is not installed" in absent or "needs an NVIDIA GPU" in absent


def test_allocator_growth_probes_a_step(run_probe: Run) -> None:
    record = run_probe("allocator_growth")
    assert {cell.key.workload for cell in record.cells} == {"step"}
    assert ended(record, "tensor") == {"ok"}


@pytest.mark.parametrize(("name", "axis"), [("batch_sweep", "B"), ("depth_sweep", "iters")])
def test_a_sweep_has_a_step_a_size(name: str, axis: str, run_probe: Run) -> None:
    record = run_probe(name)
    assert {cell.key.size(axis) for cell in record.cells} == {1, 2}
    assert ended(record, "tensor") == {"ok"}


def test_the_page_names_every_probe_and_nothing_else() -> None:
    page = (PROBES / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`python probes/(\w+)\.py", page))
    assert named == {path.stem for path in PROBES.glob("*.py") if not path.stem.startswith("_")}


@pytest.mark.parametrize("name", ["picture", "page_picture", "sampled_utilisation"])
def test_a_script_without_its_arguments_says_what_it_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "page_picture":
        pytest.importorskip("playwright")
    for typed in ([], ["--help"]):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *typed])
        with pytest.raises(SystemExit) as left:
            runpy.run_path(str(PROBES / f"{name}.py"), run_name="__main__")
        assert str(left.value.code).startswith(f"usage: python probes/{name}.py ")


def test_a_picture_of_no_run_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["picture.py", str(tmp_path), str(tmp_path / "bars.svg")])
    with pytest.raises(SystemExit, match=r"picture: .*run\.json: cannot read"):
        runpy.run_path(str(PROBES / "picture.py"), run_name="__main__")
