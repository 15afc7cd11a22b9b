"""A peer in a session: measured beside our paths, its first call bounded, absent with its reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from probe_parts import PaperLab, PaperSpawn, tiny_plan

from kdaprof.errors import UnavailableError
from kdaprof.kda import kda
from kdaprof.probe.child import ChildCell, ChildResult, ChildSpec
from kdaprof.probe.children import KEEP_TUNING
from kdaprof.probe.plan import Effort
from kdaprof.probe.session import run_probe
from kdaprof.runs.record import RunRecord
from kdaprof.runs.samples import Sample
from kdaprof.workloads import op as op_module

LIMITED = Effort(
    rounds=1, rounds_most=1, samples=2, warmup=1, allocator=1, events=1, util_seconds=0, cold_runs=1, cold_limit_s=60
)
TOO_LONG = ChildResult(failure="the worker process took longer than 60 s and was ended")


def run(
    out: Path, answer: Callable[[ChildSpec], ChildResult], *, effort: Effort = LIMITED, cold: bool = False
) -> tuple[RunRecord, PaperLab]:
    """`tensor` and `fla`, eager and graph, on the CPU taken for a GPU."""
    paper = PaperLab(spawn=PaperSpawn(answer))
    plan = tiny_plan(out, "cpu:0", paths="tensor,fla", modes="eager,graph", effort=effort, cold=cold)
    return run_probe(plan, paper.lab()).record, paper


def first_call(spec: ChildSpec) -> ChildResult:
    cell = spec.cases[0].key.id
    sample = Sample(cell=cell, repeat="cold", round=0, index=0, t_ns=1, host_ns=1, wall_ns=10**9)
    return ChildResult(cells=(ChildCell(cell=cell, samples=(sample,)),))


@pytest.fixture
def fla_by_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that is there, and right."""

    def op(*_args: object, **_kwargs: object) -> Callable[..., torch.Tensor]:
        return lambda *args: kda(*args, path="reference")[0]

    monkeypatch.setattr(op_module, "peer_op", op)


def told(record: RunRecord, path: str, mode: str = "eager") -> tuple[str, str]:
    cell = next(c for c in record.cells if (c.key.path, c.key.mode) == (path, mode))
    return cell.status, cell.error.text if cell.error else ""


@pytest.mark.usefixtures("fla_by_the_reference")
def test_a_first_call_within_the_limit_is_made_once_and_kept(tmp_path: Path) -> None:
    record, paper = run(tmp_path / "run", first_call)
    (first, env, limit), (profiled, kept, _) = paper.spawn.asked
    assert ([case.key.path for case in first.cases], first.task, env, limit) == (["fla"], "cold", KEEP_TUNING, 60)
    assert (profiled.task, kept) == ("profile", KEEP_TUNING)
    assert told(record, "fla") == ("ok", "")
    cell = next(c for c in record.cells if c.key.path == "fla")
    assert cell.observed is not None
    assert cell.observed.check is not None
    assert cell.observed.check.passed
    assert cell.observed.check.tolerance_l2 == 1e-2


@pytest.mark.usefixtures("fla_by_the_reference")
def test_a_first_call_over_the_limit_fails_its_cells_and_no_others(tmp_path: Path) -> None:
    record, paper = run(tmp_path / "run", lambda spec: TOO_LONG)
    for mode in ("eager", "graph"):
        status, why = told(record, "fla", mode)
        assert status == "failed"
        assert "limited by --cold-limit 60" in why
        assert "timing, graph, profile skipped" in why
    assert told(record, "tensor")[0] == "ok"
    assert [case.key.path for spec, _, _ in paper.spawn.asked if spec.task == "profile" for case in spec.cases] == [
        "tensor"
    ]


@pytest.mark.usefixtures("fla_by_the_reference")
def test_cold_starts_end_at_the_limit_too(tmp_path: Path) -> None:
    record, paper = run(tmp_path / "run", lambda spec: TOO_LONG, cold=True)
    (limit,) = [limit for spec, env, limit in paper.spawn.asked if "TRITON_CACHE_DIR" in env]
    assert limit == 60
    cell = next(c for c in record.cells if (c.key.path, c.key.mode) == ("tensor", "eager"))
    assert cell.observed is not None
    assert "took longer than 60 s" in cell.observed.missing["cold_ns"]


def test_the_limit_holds_for_kda_s_relatives(tmp_path: Path) -> None:
    """The check before the rounds; FLA is not needed for a child that takes too long."""
    paper = PaperLab(spawn=PaperSpawn(lambda spec: TOO_LONG))
    plan = tiny_plan(tmp_path / "run", "cpu:0", workload="gdn", paths="tensor,fla", modes="eager", effort=LIMITED)
    record = run_probe(plan, paper.lab()).record
    status, why = told(record, "fla")
    assert status == "failed"
    assert "limited by --cold-limit 60" in why
    assert told(record, "tensor")[0] == "ok"
    assert {case.key.workload for spec, _, _ in paper.spawn.asked for case in spec.cases} == {"gdn"}


def test_without_a_limit_nothing_is_tried_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_args: object, **_kwargs: object) -> None:
        raise UnavailableError("fla-core is not installed (pip install 'kdaprof[peers]')")

    monkeypatch.setattr(op_module, "peer_op", absent)
    free = Effort(rounds=1, rounds_most=1, samples=2, warmup=1, allocator=1, events=1, util_seconds=0)
    record, paper = run(tmp_path / "run", lambda spec: TOO_LONG, effort=free)
    assert [spec.task for spec, _, _ in paper.spawn.asked] == ["profile"]
    assert told(record, "fla") == ("unavailable", "fla-core is not installed (pip install 'kdaprof[peers]')")
    assert told(record, "tensor")[0] == "ok"
