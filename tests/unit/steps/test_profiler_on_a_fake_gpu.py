"""The whole profiler in fake time on a fake GPU: figures from windows, faults, a profiler that stays attached."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_gpu import RecordingGpu, fake_lab

from kdaprof import StepProfiler
from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.errors import UsageError
from kdaprof.instruments.fakes import FakeClock
from kdaprof.instruments.steps.borders import NoBorders
from kdaprof.integrations.steps import WindowPlan
from kdaprof.integrations.steps import profiler as profiler_module
from kdaprof.kda.ledger import Counters, PathCount
from kdaprof.runs.facts import Fact
from kdaprof.runs.results import CellResult

MS = 1_000_000
PLAN = WindowPlan(first=30, every=30, steps=2)


def train(prof: StepProfiler, gpu: RecordingGpu, steps: int, *, host: int = 2 * MS, device: int = 1 * MS) -> None:
    for _ in range(steps):
        with prof.step(tokens=4096):
            for phase, times in (("fwd", 1), ("bwd", 2), ("opt", 1)):
                with prof.phase(phase):
                    gpu.launch(times * host, times * device)


def facts_of(out: Path) -> dict[str, dict[str, Fact]]:
    raw = load_raw(out)
    return {cell.id.split("/")[4]: cell.facts for cell in derive(raw).cells}


def watched(out: Path, steps: int = 100, **options: Any) -> dict[str, dict[str, Fact]]:
    lab, gpu, _ = fake_lab()
    with StepProfiler(out, shape={"B": 8, "T": 512}, windows=PLAN, lab=lab, environ={}) as prof:
        train(prof, gpu, steps, **options)
    return facts_of(out)


def near(fact: Fact, value: float) -> bool:
    assert fact.value is not None, fact.detail
    return fact.value == pytest.approx(value, rel=0.005)


def test_a_host_bound_loop(tmp_path: Path) -> None:
    facts = watched(tmp_path / "run")
    step = facts["step"]
    assert near(step["wall_ns"], 8 * MS)
    assert near(step["gpu_busy_ns"], 4 * MS)
    assert near(step["host_bound"], 0.5)
    assert step["launches"].value == 3
    assert near(step["tokens_per_s"], 4096 / 8e-3)
    # Phases and what lies between them add up to the step, on every count.
    phases = ("fwd", "bwd", "opt", "other")
    for name in ("wall_ns", "gpu_span_ns", "gpu_busy_ns", "idle_ns"):
        assert near(step[name], sum(facts[phase][name].value or 0 for phase in phases)), name
    assert near(facts["bwd"]["gpu_busy_ns"], 2 * MS)
    # Every idle nanosecond has its class: here the launch call has nearly all of it.
    assert near(step["idle_launch_call_ns"], step["idle_ns"].value or 0)
    assert step["reserved_growth_bytes"].missing is not None


def test_a_gpu_bound_loop_is_not_taken_for_a_fast_one(tmp_path: Path) -> None:
    # The host issues a step in 0.4 ms and runs ahead; the device takes 8 ms. One .item() a step would hold it back.
    facts = watched(tmp_path / "run", host=100_000, device=2 * MS)
    assert near(facts["step"]["gpu_busy_ns"], 8 * MS)
    assert near(facts["step"]["gpu_span_ns"], 8 * MS)
    assert near(facts["bwd"]["gpu_span_ns"], 4 * MS)
    assert (facts["step"]["host_bound"].value or 0) < 0.01
    assert (facts["bwd"]["idle_ns"].value or 0) >= 0


def test_the_report_speaks_of_steps_and_tables_show_phases(tmp_path: Path) -> None:
    lab, gpu, _ = fake_lab()
    with StepProfiler(tmp_path / "run", shape={"B": 8}, windows=PLAN, lab=lab, environ={}) as prof:
        train(prof, gpu, 100)
    found = derive(load_raw(tmp_path / "run")).findings
    assert [finding.id for finding in found if finding.severity != "info"] == ["host-bound"]
    assert found[0].cell == "step/own/plain/eager/step/B8/float32"
    text = prof.summary()
    assert "it does not call the op, so that there is no path to prove. The GPU waits 50 % of a step" in text
    (span,) = [line.split() for line in text.splitlines() if line.startswith("GPU span ms")]
    # A backward issued in 4 ms whose 2 ms of work come last: the device is through with it when 8 ms are over.
    assert span[3:6] == ["2.02", "5.01", "1.01"]
    # A phase that launches nothing has 0 launches, not none.
    (launches,) = [line.split() for line in text.splitlines() if line.startswith("launches")]
    assert launches[1:] == ["1", "1", "1", "0", "3"]


class Gate:
    """The gate's counters, as a loop moves them."""

    def __init__(self, path: str, *, trains: bool = True) -> None:
        self.path, self.trains, self.calls = path, trains, 0

    def __call__(self) -> Counters:
        return Counters(
            tuple(
                (name, PathCount(*((self.calls, self.calls * self.trains) if name == self.path else (0, 0))))
                for name in ("fused", "tensor")
            )
        )


def proof(out: Path, gate: Gate, kernel: str, **options: Any) -> tuple[StepProfiler, dict[str, CellResult]]:
    lab, gpu, _ = fake_lab()
    gpu.kernel = kernel
    lab = replace(lab, counters=gate)
    with StepProfiler(out, shape={"B": 8}, windows=PLAN, lab=lab, environ={}, **options) as prof:
        for _ in range(100):
            gate.calls += 2
            train(prof, gpu, 1)
    return prof, {cell.id.split("/")[4]: cell for cell in derive(load_raw(out)).cells}


def test_the_path_is_the_gates_and_the_kernels_confirm_it_for_every_phase(tmp_path: Path) -> None:
    prof, cells = proof(tmp_path / "run", Gate("fused"), "kdaprof_kda_fwd_prepare")
    assert {cell.id.split("/")[1] for cell in cells.values()} == {"fused"}
    assert {cell.evidence.verdict for cell in cells.values()} == {"partial"}
    assert {w.name: w.says for w in cells["opt"].evidence.witnesses} == {
        "gate": "fused",
        "kernels": "fused",
        "counts": None,
    }
    assert cells["step"].facts["wall_ns"].quotable
    assert "kda fused=200/200" in prof.line()


def test_a_loop_that_says_fused_and_runs_something_else_is_contradicted(tmp_path: Path) -> None:
    # The report's own story: a type test sends every step down the tensor path.
    _, cells = proof(tmp_path / "run", Gate("tensor"), "ampere_sgemm_64x64", path="fused")
    assert {cell.evidence.verdict for cell in cells.values()} == {"contradicted"}
    assert {reason.rule for reason in cells["fwd"].facts["wall_ns"].reasons} == {"Q06"}
    findings = derive(load_raw(tmp_path / "run")).findings
    assert findings[0].id == "path-contradicted"


def test_a_training_loop_without_a_backward_of_the_op_is_q07(tmp_path: Path) -> None:
    _, cells = proof(tmp_path / "run", Gate("tensor", trains=False), "ampere_sgemm_64x64")
    assert "Q07" in {reason.rule for reason in cells["step"].facts["wall_ns"].reasons}
    _, cells = proof(tmp_path / "eval", Gate("tensor", trains=False), "ampere_sgemm_64x64", trains=False)
    assert "Q07" not in {reason.rule for reason in cells["step"].facts["wall_ns"].reasons}


def test_a_very_long_loop_leaves_its_figures_to_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler_module, "MOST_DERIVED", 50)
    lab, gpu, _ = fake_lab()
    with StepProfiler(tmp_path / "run", shape={"B": 8}, windows=PLAN, lab=lab, environ={}) as prof:
        train(prof, gpu, 51)
    assert prof.notes == (f"51 steps: `kdaprof report {tmp_path}/run --write` derives the figures",)
    assert not (tmp_path / "run" / "facts.json").exists()
    assert load_raw(tmp_path / "run").record.complete


def test_steps_of_no_time_at_all_divide_nothing_by_zero(tmp_path: Path) -> None:
    lab, _, _ = fake_lab()
    assert isinstance(lab.clock, FakeClock)
    lab.clock.tick_ns = 0
    lab = replace(lab, borders=NoBorders("fake"))
    with StepProfiler(tmp_path / "run", shape={"B": 8}, windows=WindowPlan(most=0), lab=lab, environ={}) as prof:
        for _ in range(60):
            with prof.step(), prof.phase("fwd"):
                pass
    assert prof.notes == ()
    assert facts_of(tmp_path / "run")["fwd"]["wall_ns"].value == 0
    assert prof.line().startswith("step 59 · 0 ns (fwd 0 ns")


def test_windows_take_turns_and_synchronise_twice_each(tmp_path: Path) -> None:
    lab, gpu, kinds = fake_lab()
    with StepProfiler(tmp_path / "run", shape={"B": 8}, windows=PLAN, lab=lab, environ={}) as prof:
        before = gpu.synchronized
        train(prof, gpu, 100)
        assert gpu.synchronized - before == 2 * 3
    assert kinds == ["profiled-cuda", "profiled-full", "profiled-cuda"]
    assert prof.notes == ()
    raw = load_raw(tmp_path / "run")
    step = next(cell for cell in raw.record.cells if cell.key.phase == "step")
    assert step.observed is not None
    assert [(p.kind, p.repeats) for p in step.observed.profiled] == [(kind, 2) for kind in kinds]
    rows = raw.samples[step.id]
    assert [row.index for row in rows if row.repeat == "profiled-cuda"] == [30, 31, 90, 91]
    assert [row.index for row in rows if row.repeat == "profiled-full"] == [60, 61]
    assert [row.index for row in rows] == list(range(100))  # the series from step 0, nothing lost


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        ("start", "no profiled windows: the profiler did not start (RuntimeError: cannot start)"),
        ("stop", "no more profiled windows: the profiler did not stop (RuntimeError: cannot stop)"),
        ("export", "a profiled window was lost: RuntimeError: cannot export"),
    ],
)
def test_a_profiler_that_fails_is_a_note_and_training_goes_on(tmp_path: Path, fails: str, says: str) -> None:
    lab, gpu, _ = fake_lab(fails)
    with StepProfiler(tmp_path / "run", shape={"B": 8}, windows=PLAN, lab=lab, environ={}) as prof:
        train(prof, gpu, 50)
    assert prof.notes == (says,)
    raw = load_raw(tmp_path / "run")
    assert raw.record.notes == (says,)
    assert raw.record.complete
    assert {len(rows) for rows in raw.samples.values()} == {50}
    step = facts_of(tmp_path / "run")["step"]
    assert step["gpu_busy_ns"].missing is not None
    if fails == "start":
        assert "did not start" in (step["gpu_busy_ns"].detail or "")


def test_a_profiler_that_stays_attached_is_found(tmp_path: Path) -> None:
    for stays, expected in ((0, False), (200_000, True)):
        lab, gpu, _ = fake_lab(stays=stays)
        out = tmp_path / f"run{stays}"
        with StepProfiler(out, shape={"B": 8}, windows=WindowPlan(first=30, every=500), lab=lab, environ={}) as prof:
            train(prof, gpu, 60)
        found = {finding.id: finding for finding in derive(load_raw(out)).findings}
        assert ("profiler-left-attached" in found) is expected
    finding = found["profiler-left-attached"]
    assert finding.evidence["ratio"] == pytest.approx((8 + 3 * 0.2) / 8, rel=0.01)
    assert "TEARDOWN_CUPTI=1" in finding.next


def test_a_step_that_dies_in_a_window_takes_the_window_with_it(tmp_path: Path) -> None:
    lab, gpu, _ = fake_lab()

    def dying() -> None:
        with StepProfiler(tmp_path / "run", shape={"B": 8}, windows=PLAN, lab=lab, environ={}) as prof:
            train(prof, gpu, 31)
            with prof.step(), prof.phase("bwd"):
                raise FloatingPointError("loss is NaN")

    with pytest.raises(FloatingPointError):
        dying()
    record = load_raw(tmp_path / "run").record
    assert not record.complete
    assert record.notes == ("the loop was ended by FloatingPointError in step 31, phase bwd",)
    assert not list((tmp_path / "run").glob("timeline-*"))


def test_a_plan_without_sense_is_refused() -> None:
    for bad in ({"steps": 0}, {"every": 2, "steps": 2}, {"first": -1}):
        with pytest.raises(UsageError, match="needs first and most of 0 or more"):
            WindowPlan(**bad)
    assert not any(WindowPlan(most=0).begins(number) for number in range(1000))
