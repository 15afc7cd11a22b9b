"""A whole probe with scripted children: what is on disk, when, and what is left when something ends it."""

from __future__ import annotations

import getpass
import json
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from probe_parts import SECRETS, PaperLab, PaperProgress, PaperSpawn, tiny_plan

from kdaprof import __version__
from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.errors import UsageError
from kdaprof.probe import cold, costs, session
from kdaprof.probe.child import ChildCell, ChildResult, ChildSpec
from kdaprof.probe.plan import HOST_SHAPE
from kdaprof.probe.session import ProbeOutcome, run_probe
from kdaprof.report.markdown import render
from kdaprof.runs.atomic import TargetError
from kdaprof.runs.environment import Secrets
from kdaprof.runs.record import CellError, CellRecord, Observed, RunRecord
from kdaprof.runs.samples import Sample
from kdaprof.runs.store import RunWriter, StoredRun, read_run
from kdaprof.runs.util import read_util
from kdaprof.workloads import op as op_module


def run(out: Path, paper: PaperLab | None = None, device: str = "cpu", **plan: Any) -> ProbeOutcome:
    return run_probe(tiny_plan(out, device, **plan), (paper or PaperLab()).lab())


def statuses(stored: StoredRun) -> dict[str, str]:
    return {"/".join(c.id.split("/")[1:5]): c.status for c in stored.record.cells}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


# ---------------------------------------------------------------- the whole way


def test_a_run_that_goes_well(out: Path) -> None:
    paper = PaperLab()
    outcome = run(out, paper, phases="fwd,bwd")
    assert (outcome.path, outcome.interrupted) == (out, False)
    stored = read_run(out)
    assert stored.record == outcome.record
    assert stored.record.complete
    assert statuses(stored) == dict.fromkeys(
        ("tensor/plain/eager/fwd", "reference/plain/eager/fwd", "tensor/plain/eager/bwd", "reference/plain/eager/bwd"),
        "ok",
    )
    assert list(stored.samples) == sorted(cell.id for cell in stored.record.cells)
    assert all(len(samples) == 6 for samples in stored.samples.values())
    assert paper.spawn.asked == []
    assert paper.progress.closed == 1


def test_conditions_are_looked_at_before_during_and_after(out: Path) -> None:
    paper = PaperLab()
    record = run(out, paper).record
    assert paper.looks == [True, False, False, True]
    conditions = record.conditions
    assert conditions.before is not None
    assert conditions.after is not None
    order = [conditions.before, *conditions.during, conditions.after]
    assert [look.monotonic_ns for look in order] == [1, 2, 3, 4]


def test_times_notes_and_costs_are_in_the_record(out: Path) -> None:
    record = run(out).record
    assert record.ended_unix_ns is not None
    assert record.ended_monotonic_ns is not None
    assert record.ended_monotonic_ns > record.started_monotonic_ns
    assert record.ended_unix_ns > record.started_unix_ns
    assert len(record.notes) == 1
    assert record.notes[0].startswith("plain/fwd: 2 rounds: ")
    assert {"clock_read", "nvtx_range"} <= {cost.name for cost in record.overhead}
    assert record.ceilings == ()
    assert record.command == ("kdaprof", "probe")


def test_the_run_is_on_disk_before_anything_is_measured(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RunRecord] = []

    def look(_device: object, _clock: object) -> tuple[()]:
        seen.append(read_run(out).record)
        return ()

    monkeypatch.setattr(session, "measure_ceilings", look)
    run(out)
    (record,) = seen
    assert not record.complete
    assert {cell.status for cell in record.cells} == {"skipped"}
    assert all(cell.error and "before this cell was measured" in cell.error.text for cell in record.cells)


def test_every_round_reaches_the_disk(out: Path) -> None:
    paper = PaperLab()
    kept: list[list[int]] = []

    def look(careful: bool) -> Any:
        if not careful:
            kept.append([len(samples) for samples in read_run(out).samples.values()])
        return paper.snapshot(careful)

    run_probe(tiny_plan(out), paper.lab(snapshot=look))
    assert kept == [[4, 4], [6, 6]]


def test_ranges_of_run_and_phase_are_closed(out: Path) -> None:
    paper = PaperLab()
    outcome = run(out, paper)
    ranges: Any = paper.bench.ranges
    named = [(name, category) for name, category, _ in ranges.started if category in ("run", "phase")]
    assert named == [(outcome.record.run, "run"), ("plain/fwd", "phase")]
    assert not ranges.open


def test_default_shape_of_the_host_is_what_the_plan_says(out: Path) -> None:
    record = run(out, shape=",".join(map(str, HOST_SHAPE)), paths="tensor").record
    assert record.cells[0].id.endswith("B1-T40-H2-K32-V32-C16/float32")


# ---------------------------------------------------------------- the target


def test_a_target_that_holds_something_is_refused_before_anything_is_looked_at(out: Path) -> None:
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    paper = PaperLab()
    with pytest.raises(UsageError, match="not empty; choose another or add --force"):
        run(out, paper)
    assert (paper.looks, paper.progress.told) == ([], [])
    assert [p.name for p in out.iterdir()] == ["thesis.txt"]


def test_force_replaces_a_run_and_only_a_run(out: Path) -> None:
    run(out)
    (out / "notes.txt").write_text("mine")
    outcome = run(out, paths="tensor", force=True)
    stored = read_run(out)
    assert (stored.record.run, list(stored.samples)) == (outcome.record.run, [outcome.record.cells[0].id])
    assert (out / "notes.txt").read_text() == "mine"


# ---------------------------------------------------------------- Ctrl-C


def interrupted(out: Path, at: str, **plan: Any) -> tuple[ProbeOutcome, PaperLab]:
    paper = PaperLab(progress=PaperProgress(interrupt_at=at))
    return run(out, paper, **plan), paper


def test_ctrl_c_between_groups_keeps_what_is_finished(out: Path) -> None:
    outcome, paper = interrupted(out, "plain/bwd: timing", phases="fwd,bwd")
    assert outcome.interrupted
    stored = read_run(out)
    assert not stored.record.complete
    assert statuses(stored) == {
        "tensor/plain/eager/fwd": "ok",
        "reference/plain/eager/fwd": "ok",
        "tensor/plain/eager/bwd": "skipped",
        "reference/plain/eager/bwd": "skipped",
    }
    assert len(stored.samples) == 2
    assert stored.record.conditions.after is not None
    assert stored.record.ended_unix_ns is not None
    assert paper.progress.closed == 1
    assert paper.looks[-1] is False  # the careful look takes a second that somebody in a hurry does not have


def test_ctrl_c_in_a_group_keeps_its_rounds_and_says_what_they_are(out: Path) -> None:
    paper = PaperLab()

    def look(careful: bool) -> Any:
        taken = paper.snapshot(careful)
        if len(paper.looks) == 3:  # behind the second round
            raise KeyboardInterrupt
        return taken

    outcome = run_probe(tiny_plan(out), paper.lab(snapshot=look))
    assert outcome.interrupted
    stored = read_run(out)
    assert set(statuses(stored).values()) == {"failed"}
    assert {c.error.type for c in stored.record.cells if c.error} == {"InterruptedRunError"}
    assert [len(samples) for samples in stored.samples.values()] == [6, 6]
    assert "partial" in render(stored.record, derive(load_raw(out))).lower()


def test_ctrl_c_before_the_first_cell_leaves_a_readable_run(out: Path) -> None:
    outcome, _ = interrupted(out, "ceilings")
    assert outcome.interrupted
    stored = read_run(out)
    assert set(statuses(stored).values()) == {"skipped"}
    assert stored.samples == {}
    assert all(result.facts["wall_ns"].value is None for result in derive(load_raw(out)).cells)


def test_ctrl_c_while_a_child_runs(out: Path) -> None:
    def press(_spec: ChildSpec) -> ChildResult:
        raise KeyboardInterrupt

    paper = PaperLab(spawn=PaperSpawn(press))
    outcome = run(out, paper, device="cpu:0")
    assert outcome.interrupted
    assert set(statuses(read_run(out)).values()) == {"ok"}


def test_any_other_error_ends_the_run_and_leaves_it_readable(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, times = RunWriter.put_samples, 0

    def full(self: RunWriter, key: Any, samples: Any) -> None:
        nonlocal times
        times += 1
        if times > 4:
            raise TargetError(f"{self.path}: cannot write (No space left on device); free space")
        put(self, key, samples)

    monkeypatch.setattr(RunWriter, "put_samples", full)
    paper = PaperLab()
    with pytest.raises(TargetError, match="No space left"):
        run(out, paper)
    assert paper.progress.closed == 1
    stored = read_run(out)
    assert not stored.record.complete
    assert all(len(samples) == 6 for samples in stored.samples.values())


# ---------------------------------------------------------------- failures that stay where they are


def test_a_failing_path_is_an_error_in_its_own_cells(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = op_module.op_of

    def broken(*_: Any) -> Any:
        raise RuntimeError("kernel launch failed")

    monkeypatch.setattr(op_module, "op_of", lambda path, chunk: broken if path == "tensor" else real(path, chunk))
    outcome = run(out, phases="fwd,bwd")
    assert outcome.record.complete
    assert statuses(read_run(out)) == {
        "tensor/plain/eager/fwd": "failed",
        "reference/plain/eager/fwd": "ok",
        "tensor/plain/eager/bwd": "failed",
        "reference/plain/eager/bwd": "ok",
    }
    assert {c.error.text for c in outcome.record.cells if c.error} == {"kernel launch failed"}


def test_ceilings_that_cannot_be_measured_leave_a_note(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(session, "measure_ceilings", full)
    monkeypatch.setattr(session, "own_costs", full)
    outcome = run(out)
    assert outcome.record.complete
    assert set(statuses(read_run(out)).values()) == {"ok"}
    assert outcome.record.notes[:2] == (
        "ceilings not measured: RuntimeError: CUDA out of memory",
        "own costs not measured: RuntimeError: CUDA out of memory",
    )


# ---------------------------------------------------------------- children


def cold_sample(spec: ChildSpec, wall_ns: int = 10**9) -> ChildResult:
    cell = spec.cases[0].key.id
    sample = Sample(cell=cell, repeat="cold", round=0, index=0, t_ns=1, host_ns=1, wall_ns=wall_ns)
    return ChildResult(cells=(ChildCell(cell=cell, samples=(sample,)),))


def test_fused_without_a_gpu_goes_to_the_interpreter(out: Path) -> None:
    def answer(spec: ChildSpec) -> ChildResult:
        key = spec.cases[0].key
        sample = Sample(cell=key.id, repeat="unprofiled", round=0, index=0, t_ns=1, wall_ns=10**9)
        record = CellRecord(key=key, status="ok", observed=Observed(device="cpu", interpreted=True))
        return ChildResult(cells=(ChildCell(cell=key.id, samples=(sample,), record=record),))

    paper = PaperLab(spawn=PaperSpawn(answer))
    run(out, paper, paths="fused,tensor", modes="eager,graph")
    ((spec, env, timeout_s),) = paper.spawn.asked
    assert (spec.task, env) == ("interpret", {"TRITON_INTERPRET": "1"})
    assert [case.key.path for case in spec.cases] == ["fused"]
    assert (spec.effort.rounds, spec.effort.samples, spec.effort.util_seconds) == (1, 2, 0)
    assert timeout_s > 120
    stored = read_run(out)
    assert statuses(stored) == {
        "fused/plain/eager/fwd": "ok",
        "fused/plain/graph/fwd": "unavailable",
        "tensor/plain/eager/fwd": "ok",
        "tensor/plain/graph/fwd": "unavailable",
    }
    (fused,) = (c for c in stored.record.cells if c.key.path == "fused" and c.key.mode == "eager")
    assert len(stored.samples[fused.id]) == 1
    assert fused.observed is not None
    assert fused.observed.interpreted


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (ChildResult(failure="the worker process ended with signal 11: no output"), "signal 11"),
        (ChildResult(), "left no result"),
        (ChildResult(cells=(ChildCell(cell="", error=CellError(type="E", text="deep inside")),)), "deep inside"),
    ],
)
def test_an_interpreter_that_dies_is_its_cells_failure(out: Path, answer: ChildResult, says: str) -> None:
    def reply(spec: ChildSpec) -> ChildResult:
        key = spec.cases[0].key.id
        return replace(answer, cells=tuple(replace(cell, cell=key) for cell in answer.cells))

    run(out, PaperLab(spawn=PaperSpawn(reply)), paths="fused,tensor")
    stored = read_run(out)
    assert statuses(stored) == {"fused/plain/eager/fwd": "failed", "tensor/plain/eager/fwd": "ok"}
    fused = stored.record.cells[0]
    assert fused.error is not None
    assert says in fused.error.text
    assert fused.observed is not None
    assert fused.observed.interpreted


def test_a_profiler_that_dies_leaves_busy_missing_and_the_walls_there(out: Path) -> None:
    paper = PaperLab(spawn=PaperSpawn(lambda _: ChildResult(failure="the worker process ended with signal 9: CUPTI")))
    outcome = run(out, paper, device="cpu:0")
    ((spec, env, _),) = paper.spawn.asked
    assert (spec.task, env, len(spec.cases), spec.out) == ("profile", {}, 2, str(out))
    assert outcome.record.complete
    for cell in read_run(out).record.cells:
        assert cell.status == "ok"
        assert cell.observed is not None
        assert cell.observed.missing["gpu_busy_ns"] == "the worker process ended with signal 9: CUPTI"
    assert all(len(samples) == 6 for samples in read_run(out).samples.values())


def test_failed_cells_are_not_profiled(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = op_module.op_of

    def broken(*_: Any) -> Any:
        raise RuntimeError("no")

    monkeypatch.setattr(op_module, "op_of", lambda path, chunk: broken if path == "tensor" else real(path, chunk))
    paper = PaperLab()
    run(out, paper, device="cpu:0")
    assert [case.key.path for spec, _, _ in paper.spawn.asked for case in spec.cases] == ["reference"]


def test_cold_starts_are_counted_on_and_have_empty_caches(out: Path) -> None:
    def answer(spec: ChildSpec) -> ChildResult:
        return cold_sample(spec) if spec.task == "cold" else ChildResult(failure="not here")

    paper = PaperLab(spawn=PaperSpawn(answer))
    run(out, paper, device="cpu:0", paths="tensor", cold=True)
    asked = [env for spec, env, _ in paper.spawn.asked if spec.task == "cold"]
    assert len(asked) == 3
    assert len({env["TRITON_CACHE_DIR"] for env in asked}) == 3
    (samples,) = read_run(out).samples.values()
    assert [(s.repeat, s.index) for s in samples if s.repeat == "cold"] == [("cold", 0), ("cold", 1), ("cold", 2)]
    assert len(samples) == 9


def test_without_a_gpu_a_cold_start_that_was_asked_for_is_missing_with_the_reason(out: Path) -> None:
    run(out, PaperLab(), paths="tensor", phases="fwd,bwd", cold=True)
    told = {c.id.split("/")[4]: c.facts["cold_ns"] for c in derive(load_raw(out)).cells if "/eager/" in c.id}
    assert told["fwd"].detail == "no GPU: a cold start is the compiling of GPU kernels"
    assert told["bwd"].detail == "a first backward waits for its forward: see forward + backward"


def test_one_very_long_cold_start_is_enough(out: Path) -> None:
    def answer(spec: ChildSpec) -> ChildResult:
        return cold_sample(spec, 230 * 10**9) if spec.task == "cold" else ChildResult(failure="not here")

    paper = PaperLab(spawn=PaperSpawn(answer))
    run(out, paper, device="cpu:0", paths="tensor", cold=True)
    assert sum(spec.task == "cold" for spec, _, _ in paper.spawn.asked) == 1


def test_a_cold_start_that_fails_is_a_reason(out: Path) -> None:
    paper = PaperLab(spawn=PaperSpawn(lambda _: ChildResult(failure="the worker process took longer than 720 s")))
    run(out, paper, device="cpu:0", paths="tensor", cold=True)
    (cell,) = read_run(out).record.cells
    assert cell.status == "ok"
    assert cell.observed is not None
    assert "longer than 720 s" in cell.observed.missing["cold_ns"]


def test_caches_are_empty_now_and_gone_afterwards() -> None:
    with cold.empty_caches() as env:
        places = {Path(value).parent for name, value in env.items() if name.endswith(("DIR", "PATH"))}
        (place,) = places
        assert list(place.iterdir()) == []
        (place / "triton").mkdir()
    assert not place.exists()


def test_costs_of_instruments_that_are_not_there_are_left_out() -> None:
    names = {cost.name for cost in costs.own_costs(PaperLab().bench)}
    assert "clock_read" in names
    assert not names & {"event_record", "allocator_read", "nvml_power"}


# ---------------------------------------------------------------- anonymous


def every_text(out: Path) -> dict[str, str]:
    """All that a run says: files as bytes, and the columns of Parquet as text."""
    texts = {str(p.relative_to(out)): p.read_bytes().decode("latin-1") for p in out.rglob("*") if p.is_file()}
    texts["samples as text"] = repr(read_run(out).samples)
    texts["util as text"] = repr(read_util(out / "gpu_util.parquet"))
    return texts


def finished(out: Path, paper: PaperLab, **plan: Any) -> None:
    run(out, paper, **plan)
    raw = load_raw(out)
    results = derive(raw)
    writer = RunWriter(out)
    writer.put_results(results)
    writer.put_report(render(raw.record, results))


GIVEN_AWAY = re.compile(r"(?<![A-Za-z0-9])(ada|turing7|checkouts|scratch|srv)(?![A-Za-z0-9])|/home/|/tmp/|/usr/")


def telling(_spec: ChildSpec) -> ChildResult:
    text = "the worker process ended with exit code 1: OSError: /scratch/ada/kernels.so on turing7: ~ada is full"
    return ChildResult(failure=text)


def test_an_anonymous_run_says_nothing_of_who_and_where(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = op_module.op_of

    def broken(*_: Any) -> Any:
        raise RuntimeError("/home/ada/kda/op.py:12: ada, see file:///srv/checkouts/kda and C:\\Users\\ada\\x")

    monkeypatch.setattr(op_module, "op_of", lambda path, chunk: broken if path == "reference" else real(path, chunk))
    command = ("kdaprof", "probe", "--out", str(out), "--store", f"{SECRETS.home}/store")
    paper = PaperLab(spawn=PaperSpawn(telling))
    finished(out, paper, device="cpu:0", anonymous=True, command=command, paths="tensor,reference,fused")
    for name, text in every_text(out).items():
        assert not GIVEN_AWAY.search(text), (name, GIVEN_AWAY.search(text))
        assert str(out) not in text, name
        assert socket.gethostname() not in text, name
    record = read_run(out).record
    assert record.environment.cwd is None
    assert record.environment.host.hostname is None
    assert record.command[:3] == ("kdaprof", "probe", "--out")
    assert statuses(read_run(out))["tensor/plain/eager/fwd"] == "ok"


def own_words(cell: CellRecord) -> tuple[object, ...]:
    """All of a cell that is looked up or compared, as against its reasons in words."""
    seen = cell.observed
    assert seen is not None
    gate = seen.gate and (seen.gate.chosen, seen.gate.forward, [refused.path for refused in seen.gate.refused])
    checked = seen.check and (seen.check.against, [tensor.name for tensor in seen.check.tensors])
    return cell.key, cell.status, seen.device, seen.cache, gate, checked, seen.signatures, sorted(seen.missing)


@pytest.mark.parametrize(
    "name", ["ok", "cuda", "cpu", "tensor", "kda", "eager", "fwd", "gate", "torch", "o", "kdaprof"]
)
def test_a_user_or_host_named_as_a_stored_word_changes_nothing(out: Path, name: str) -> None:
    who = Secrets(cwd="/s", home="/root", hostname=name, user=name)
    plan = tiny_plan(out, "cpu:0", anonymous=True, paths="tensor", command=("x", f"--store=/s/{name}"))
    run_probe(plan, replace(PaperLab().lab(), secrets=lambda: who))
    read = read_run(out)
    assert statuses(read)["tensor/plain/eager/fwd"] == "ok"
    words = [own_words(cell) for cell in read.record.cells]
    assert not re.search("<(user|host|cwd|home)>", repr(words))
    assert {v.name for v in read.record.environment.versions} >= {"torch"}
    assert {c.unit for c in read.record.ceilings} <= {"B/s", "FLOP/s"}
    assert "clock_read" in {c.name for c in read.record.overhead}
    assert (read.record.run, read.record.tool) == (plan.run, f"kdaprof {__version__}")
    assert read.record.command == ("x", "--store=<cwd>/<host>")


def test_what_the_same_run_says_when_it_is_not_anonymous(out: Path) -> None:
    """So that the test above can fail: the same words are there."""
    finished(out, PaperLab(spawn=PaperSpawn(telling)), device="cpu:0", paths="tensor")
    text = every_text(out)["run.json"]
    for word in ("ada", "turing7", "/srv/checkouts/kda", "/scratch/ada"):
        assert word in text


def test_an_anonymous_run_that_was_interrupted(out: Path) -> None:
    paper = PaperLab(progress=PaperProgress(interrupt_at="ceilings"))
    finished(out, paper, anonymous=True, command=("kdaprof", "probe", "--out", "/srv/checkouts/kda/x"))
    for name, text in every_text(out).items():
        assert not GIVEN_AWAY.search(text), name


def test_the_user_of_this_machine_is_what_the_real_secrets_name(out: Path) -> None:
    from kdaprof.instruments.environment import secrets

    told = secrets()
    assert (told.user, told.hostname, told.home) == (getpass.getuser(), socket.gethostname(), str(Path.home()))


def test_documents_are_strict_json(out: Path) -> None:
    finished(out, PaperLab())
    for name in ("run.json", "facts.json", "findings.json"):
        json.loads((out / name).read_text(), parse_constant=pytest.fail)
