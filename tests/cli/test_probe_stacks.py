"""`kdaprof probe --stacks`: the untimed repeat under py-spy, in a process of its own."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from kdaprof.analysis.stacks_document import stacks_schema
from kdaprof.cli import probe, probe_stacks
from kdaprof.cli.probe_stacks import record_paths
from kdaprof.errors import UsageError
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.cuda_device import open_device
from kdaprof.probe.loop import LoopTask, call_for
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.codec import read_document
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.workloads.op import CaseSpec

RUN = Path(__file__).parents[2] / "reports/h200-kda/run.json"
SHAPE = make_shape("kda", (1, 40, 2, 32, 32, 16))


def key(path: str, phase: str, mode: str = "eager") -> CellKey:
    return CellKey("kda", path, "plain", mode, phase, SHAPE, "float32")


def run_of(*keys: CellKey) -> RunRecord:
    stored = read_document(RUN, "run-record", RunRecord)
    return replace(stored, cells=tuple(CellRecord(key=key, status="ok") for key in keys))


def test_the_loop_says_what_ran_when() -> None:
    cases = tuple(CaseSpec(key=key("tensor", phase), device="cpu", seed=0, input_sets=1) for phase in ("fwd", "bwd"))
    clock = MonotonicClock()
    before = clock.now_ns()
    ran = call_for(LoopTask(cases, 0.2), open_device("cpu"), clock)
    assert {name for _, _, name in ran} == {"fwd", "bwd"}
    borders = [before, *(t for start, end, _ in ran for t in (start, end)), clock.now_ns()]
    assert borders == sorted(borders)


def test_each_path_gets_its_stacks_by_phase_and_fused_without_a_gpu_says_why_not(tmp_path: Path) -> None:
    told: list[str] = []
    run = run_of(key("fused", "fwd"), key("tensor", "fwd"), key("tensor", "bwd"), key("tensor", "fwd", "graph"))
    record_paths(run, tmp_path, device="cpu", seed=0, told=told.append, seconds=1.5)
    assert any("interpreter" in line for line in told)
    assert {place.name for place in tmp_path.iterdir()} == {"stacks-tensor"}
    document = json.loads((tmp_path / "stacks-tensor/stacks.json").read_text())
    jsonschema.validate(document, stacks_schema())
    assert document["native"]
    assert document["child"]["exit"] == 0
    main = document["threads"][0]
    assert [phase["name"] for phase in main["phases"]] == ["fwd", "bwd"]
    assert main["phases"][0]["layers"]["aten"]["value"] > 0.05


def test_a_step_is_sent_to_stacks() -> None:
    with pytest.raises(UsageError, match="kdaprof stacks --steps"):
        probe.run(["--workload", "step", "--stacks"])


def test_without_py_spy_nothing_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(probe_stacks, "record", lambda *_, **__: pytest.fail("the path ran again"))
    told: list[str] = []
    record_paths(run_of(key("tensor", "fwd")), tmp_path, device="cpu", seed=0, told=told.append)
    assert told == ["stacks: not recorded, py-spy is not installed here: pip install 'py-spy>=0.4'"]
    assert list(tmp_path.iterdir()) == []
