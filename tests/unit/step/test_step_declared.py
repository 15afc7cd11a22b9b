"""What a step's op is declared to launch, against the model's own calls: views are copied first."""

from __future__ import annotations

import pytest
import torch

from kdaprof.kda import fused
from kdaprof.probe.step.before import declared_step
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.workloads.step import training
from kdaprof.workloads.step.spec import VIEWS_OF_THE_OP, StepSpec


def spec(path: str, context: str = "plain") -> StepSpec:
    key = CellKey("step", path, context, "eager", "step", make_shape("step", (2, 32, 3)), "float32")
    return StepSpec(key=key, device="cpu", seed=0)


@pytest.mark.parametrize(("context", "forwards"), [("plain", 2), ("checkpoint", 3)])
def test_the_declared_copies_are_the_views_that_the_model_hands_over(
    context: str, forwards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    inner = training.op_of("tensor", 16)

    def counted(*args: torch.Tensor) -> torch.Tensor:
        given.append(sum(not arg.is_contiguous() for arg in args))
        return inner(*args)

    monkeypatch.setattr(training, "op_of", lambda *_: counted)
    case = training.StepCase(spec("tensor", context))
    case.prepare(0)
    case.run()
    assert given == [VIEWS_OF_THE_OP] * 3 * forwards
    declared = declared_step(spec("fused", context))
    assert declared is not None
    own = forwards * fused.LAUNCHES["fwd"] + fused.LAUNCHES["bwd"]
    assert declared.launches == (3 * (own + forwards * VIEWS_OF_THE_OP),) * 2
