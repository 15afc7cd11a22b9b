"""The whole profiler in fake time on a fake GPU: figures from windows, faults, a profiler that stays attached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_gpu import RecordingGpu, fake_lab

from kdaprof import StepProfiler
from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.errors import UsageError
from kdaprof.integrations.steps import WindowPlan
from kdaprof.runs.facts import Fact

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
