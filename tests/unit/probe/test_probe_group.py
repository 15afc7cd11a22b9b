"""A group of cells on the CPU: every failure stays in its own cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from probe_parts import QUICK, cpu_bench, spec

from kdaprof.probe import group as group_module
from kdaprof.probe.bench import Bench
from kdaprof.probe.declared import observed_before
from kdaprof.probe.group import GroupMeasurement, GroupOutcome
from kdaprof.probe.plan import Effort
from kdaprof.runs.record import CellRecord
from kdaprof.workloads import op as op_module
from kdaprof.workloads.op import CaseSpec, Outputs

Call = Callable[..., torch.Tensor]


def measured(
    *specs: CaseSpec, bench: Bench | None = None, effort: Effort = QUICK, hook: Any = lambda *_: None
) -> GroupOutcome:
    bench = bench or cpu_bench()
    observed = {s.key.id: observed_before(s, bench, cache="rotate") for s in specs}
    return GroupMeasurement(specs, observed, bench, effort, hook).run()


def by_path(outcome: GroupOutcome) -> dict[str, CellRecord]:
    return {cell.key.path: cell for cell in outcome.cells}


def replace_op(monkeypatch: pytest.MonkeyPatch, path: str, make: Callable[[Call], Call]) -> None:
    real = op_module.op_of
    monkeypatch.setattr(
        op_module, "op_of", lambda name, chunk: make(real(name, chunk)) if name == path else real(name, chunk)
    )


def test_a_group_that_goes_well() -> None:
    outcome = measured(spec("tensor", "fwdbwd"), spec("reference", "fwdbwd"))
    assert [cell.status for cell in outcome.cells] == ["ok", "ok"]
    for cell in outcome.cells:
        assert cell.observed is not None
        assert cell.observed.gate is not None
        assert cell.observed.gate.chosen == cell.key.path
        assert cell.observed.check is not None
        assert cell.observed.check.passed
        assert [t.name for t in cell.observed.check.tensors] == ["o", "dq", "dk", "dv", "dg", "dbeta"]
        samples = outcome.samples[cell.id]
        assert [s.index for s in samples] == list(range(len(samples)))
        assert [s.round for s in samples] == [-1, -1, 0, 0, 1, 1]
    assert len(outcome.notes) == 1


def test_counts_are_declared_before_the_first_call() -> None:
    seen = observed_before(spec("tensor"), cpu_bench(), cache="rotate")
    assert seen.clock_resolution_ns == cpu_bench().clock_resolution_ns  # what Q16 holds short spans against
    assert seen.declared is not None
    assert seen.declared.launches is not None
    assert seen.gate is None
    assert seen.work is not None
    assert (seen.device, seen.cache, seen.tokens, seen.trains) == ("cpu", "warm", 20, False)
    assert set(seen.missing) >= {"gpu_busy_ns", "launches"}
    assert {s.path for s in seen.signatures} >= {"fused", "tensor", "compiled"}


def test_a_path_that_raises_at_once_is_its_own_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_op: Call) -> Call:
        def call(*_: torch.Tensor) -> torch.Tensor:
            raise ValueError("no such thing\nsecond line")

        return call

    replace_op(monkeypatch, "tensor", broken)
    outcome = measured(spec("tensor"), spec("reference"))
    cells = by_path(outcome)
    assert (cells["tensor"].status, cells["reference"].status) == ("failed", "ok")
    error = cells["tensor"].error
    assert error is not None
    assert (error.type, error.text) == ("ValueError", "no such thing · second line")
    assert cells["tensor"].id not in outcome.samples
    assert len(outcome.samples[cells["reference"].id]) == 6


def test_a_path_that_raises_in_the_middle_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def later(op: Call) -> Call:
        def call(*args: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            if calls == 5:  # step 0, a warm-up, one to settle, one sample
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7 GiB.")
            return op(*args)

        return call

    replace_op(monkeypatch, "tensor", later)
    outcome = measured(spec("tensor"), spec("reference"))
    cells = by_path(outcome)
    error = cells["tensor"].error
    assert error is not None
    assert error.text == "CUDA out of memory. Tried to allocate 7 GiB. — choose a smaller --shape"
    assert [s.round for s in outcome.samples[cells["tensor"].id]] == [-1, -1, 0]
    assert cells["reference"].status == "ok"
    assert len(outcome.samples[cells["reference"].id]) == 6


def test_an_unavailable_path_says_why_and_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    cells = by_path(measured(spec("fused"), spec("tensor")))
    assert (cells["fused"].status, cells["tensor"].status) == ("unavailable", "ok")
    assert cells["fused"].error is not None
    assert "fused" in cells["fused"].error.text


def test_a_graph_without_a_gpu_is_unavailable() -> None:
    outcome = measured(spec("tensor"), spec("tensor", mode="graph"))
    assert [(c.key.mode, c.status) for c in outcome.cells] == [("eager", "ok"), ("graph", "unavailable")]
    assert outcome.cells[1].error is not None
    assert outcome.cells[1].error.text == "CUDA Graphs need a CUDA device"


def test_inputs_that_do_not_fit_fail_every_cell_and_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(CaseSpec, "make_set", full)
    outcome = measured(spec("tensor"), spec("reference"))
    assert [cell.status for cell in outcome.cells] == ["failed", "failed"]
    assert all(cell.error and "smaller --shape" in cell.error.text for cell in outcome.cells)
    assert (outcome.samples, outcome.notes) == ({}, ())


def test_a_wrong_output_is_measured_and_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule Q09 refuses its times; the samples stay."""
    replace_op(monkeypatch, "tensor", lambda op: lambda *args: 1.01 * op(*args))
    cells = by_path(measured(spec("tensor", "fwdbwd"), spec("reference", "fwdbwd")))
    seen = cells["tensor"].observed
    assert cells["tensor"].status == "ok"
    assert seen is not None
    assert seen.check is not None
    assert not seen.check.passed
    assert all(t.l2 == pytest.approx(0.01, rel=0.01) for t in seen.check.tensors)
    assert cells["reference"].observed is not None
    assert cells["reference"].observed.check is not None
    assert cells["reference"].observed.check.passed


def test_a_path_that_loses_a_gradient_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    real = op_module.OpCase.outputs

    def without_dg(self: op_module.OpCase) -> Outputs:
        return {name: value for name, value in real(self).items() if name != "dg"}

    monkeypatch.setattr(op_module.OpCase, "outputs", without_dg)
    (cell,) = measured(spec("tensor", "fwdbwd")).cells
    assert cell.status == "failed"
    assert cell.error is not None
    assert (cell.error.type, cell.error.text.split(";")[0]) == ("OutputError", "dg was not returned")


def test_partial_gradients_are_compared_as_far_as_they_are_asked_for() -> None:
    (cell,) = measured(spec("tensor", "fwdbwd", context="partial-grad")).cells
    assert cell.observed is not None
    assert cell.observed.check is not None
    assert [t.name for t in cell.observed.check.tensors] == ["o", "dv"]
    assert cell.observed.check.passed


def test_an_instrument_that_fails_leaves_its_own_figures_missing() -> None:
    class Broken:
        missing: str | None = None

        def read(self) -> None:
            return None

        def reset_peak(self) -> None:
            raise AssertionError

    def lost(_loop: Callable[[], None]) -> tuple[Any, ...]:
        raise RuntimeError("GPU is lost")

    bench = replace(cpu_bench(), allocator=Broken(), sample_while=lost)
    outcome = measured(spec("tensor"), bench=bench, effort=replace(QUICK, util_seconds=0.01))
    (cell,) = outcome.cells
    assert cell.status == "ok"
    assert cell.observed is not None
    assert cell.observed.missing["util_mean"] == "RuntimeError: GPU is lost"
    assert cell.observed.missing["util_idle_share"] == "RuntimeError: GPU is lost"
    assert len(outcome.samples[cell.id]) == 6


def test_the_hook_sees_every_round_with_the_samples_so_far() -> None:
    seen: list[tuple[int, list[int]]] = []
    measured(
        spec("tensor"),
        spec("reference"),
        hook=lambda number, live: seen.append((number, [len(series.samples) for series in live])),
    )
    assert seen == [(0, [4, 4]), (1, [6, 6])]


def test_the_reference_is_computed_once_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = group_module.reference, []

    def counted(inputs: Any, *, backward: bool) -> Any:
        calls.append(backward)
        return real(inputs, backward=backward)

    monkeypatch.setattr(group_module, "reference", counted)
    measured(spec("tensor"), spec("reference"), spec("tensor-rows"))
    assert calls == [False]
