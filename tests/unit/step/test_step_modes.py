"""Modes of a step without a card: which cells are planned, and what torch.compile's own graphs are held to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kdaprof.errors import UsageError
from kdaprof.probe.step.capture import REPLAYS, capture_step
from kdaprof.probe.step.plan import StepPlan, StepRequest
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.workloads.step.spec import HOST_MODEL, StepSpec


def plan(**flags: object) -> StepPlan:
    request = StepRequest(paths="fused,tensor", out=Path("unused"), **flags)  # type: ignore[arg-type]
    return request.checked().plan("cuda:0")


def steps_of(made: StepPlan) -> list[tuple[str, str, int]]:
    keys = [key for key in made.cells() if key.phase == "step"]
    return [(key.path, key.mode, key.size("iters")) for key in keys]


def test_a_mode_may_belong_to_one_path() -> None:
    made = plan(modes="eager,graph,fused:graphed-callables,fused:reduce-overhead")
    assert steps_of(made) == [
        *(("fused", mode, 4) for mode in ("eager", "graph", "graphed-callables", "reduce-overhead")),
        *(("tensor", mode, 4) for mode in ("eager", "graph")),
    ]


@pytest.mark.parametrize(
    ("modes", "says"), [("copy:graph", "'copy' is unknown"), ("fused:greph", "'greph' is unknown"), ("", "nothing")]
)
def test_a_mode_of_no_path_or_no_mode_is_refused(modes: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan(modes=modes)


def test_half_the_iterations_is_a_step_of_its_own_beside_each_path() -> None:
    made = plan(modes="eager", halve=True, ablate=True)
    assert steps_of(made) == [(p, "eager", n) for p in ("fused", "tensor") for n in (4, 2)] + [("copy", "eager", 4)]
    halves = [key for key in made.cells() if made.is_half(key)]
    assert {(key.phase, key.size("iters")) for key in halves} == {("step", 2)}
    assert len(tuple(made.groups())) == 1
    assert made.spec(halves[0]).key.size("iters") == 2


def test_an_odd_number_of_iterations_has_no_half() -> None:
    with pytest.raises(UsageError, match="--max-iter 3 has no half"):
        plan(halve=True, max_iter=(3,))


class Compiler:
    """Stands in for `torch.compile(mode="reduce-overhead")`: keeps what it was asked, and runs the module as it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor], Tensor] = lambda h: h) -> None:
        self.asked: list[object] = []
        self.begun = 0
        self._change = change
        monkeypatch.setattr(torch, "compile", self._compile)
        monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", self._begin)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def _compile(self, module: Callable[[Tensor], Tensor], *, mode: str) -> Callable[[Tensor], Tensor]:
        self.asked.append((type(module).__name__, mode))
        return lambda tokens: self._change(module(tokens))

    def _begin(self) -> None:
        self.begun += 1


def spec() -> StepSpec:
    key = CellKey("step", "tensor", "plain", "eager", "step", make_shape("step", (2, 20, 2)), "float32")
    return StepSpec(key=key, device="cpu", seed=0, size=HOST_MODEL)


def test_student_and_teacher_are_compiled_and_each_step_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch)
    made = capture_step(spec(), "reduce-overhead", lambda: 0)
    assert compiler.asked == [("LoopedModel", "reduce-overhead")] * 2
    assert compiler.begun == 1 + REPLAYS
    assert made.case is not None
    assert made.capture.captured
    assert made.capture.check is not None
    assert made.capture.check.passed
    assert made.capture.stale_check_failed
    assert made.case.watch.mark is None


def test_compiled_code_that_computes_something_else_fails_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    Compiler(monkeypatch, lambda h: h * 1.01)
    made = capture_step(spec(), "reduce-overhead", lambda: 0)
    assert made.capture.check is not None
    assert not made.capture.check.passed


@pytest.mark.parametrize(("held", "pool"), [([700, 1000], 300), ([700, 700], None), ([700, 600], None)])
def test_a_mode_s_pool_is_what_private_pools_grew_by_and_never_0(
    monkeypatch: pytest.MonkeyPatch, held: list[int], pool: int | None
) -> None:
    Compiler(monkeypatch)
    readings = iter(held)
    made = capture_step(spec(), "reduce-overhead", lambda: next(readings))
    assert made.capture.pool_bytes == pool
