"""Watching the KDA calls inside a step: host borders of each call and of each of its backward passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kdaprof.workloads.step.model import Op

Mark = Callable[[str, bool], None]
"""Told (line, True) when a call begins and (line, False) when it has returned; lines are those of `OP_LINES`."""


@dataclass(slots=True)
class OpWatch:
    """The switch that a model's op looks at: `mark` None, as in every timed sample, costs one comparison a call.

    `line` is the name of the phase that runs forward calls now; backward passes report as `bwd.kda`.
    """

    mark: Mark | None = None
    line: str = "fwd.kda"


def watchable(op: Op, watch: OpWatch) -> Op:
    """`op`, which tells `watch` of its calls when somebody listens.

    A backward pass begins when the gradient of the output arrives and ends when all gradients of the inputs are
    there. It runs on autograd's own thread: `mark` must take calls from there.
    """

    def call(*args: torch.Tensor) -> torch.Tensor:
        mark = watch.mark
        if mark is None:
            return op(*args)
        backward = torch.is_grad_enabled() and any(argument.requires_grad for argument in args)
        inside = _Entrance.apply(mark, *args) if backward else args  # type: ignore[no-untyped-call]
        mark(watch.line, True)
        o = op(*inside)
        mark(watch.line, False)
        if backward and o.requires_grad:
            o.register_hook(lambda gradient: mark("bwd.kda", True))  # type: ignore[no-untyped-call]
        return o

    return call


class _Entrance(torch.autograd.Function):
    """The op's inputs as they are. Its backward runs once all their gradients are there, and before what made them."""

    @staticmethod
    def forward(ctx: Any, mark: Mark, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Views: nothing is launched, in the backward neither: an input without a gradient gets no zeros for one."""
        ctx.set_materialize_grads(False)
        ctx.mark = mark
        return tuple(argument.view_as(argument) for argument in args)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Gradients as they are."""
        ctx.mark("bwd.kda", False)
        return (None, *gradients)
