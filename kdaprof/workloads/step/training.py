"""The training step itself: student, teacher, retrieval loss, backward, AdamW, moving average, each a phase."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kdaprof.kda import kda
from kdaprof.workloads.contexts import wrap
from kdaprof.workloads.step.case import Outputs, Phase
from kdaprof.workloads.step.model import LoopedModel, Op, retrieval_loss
from kdaprof.workloads.step.spec import COPY_PATH, StepSpec
from kdaprof.workloads.step.watched import OpWatch, watchable

LEARNING_RATE = 1e-4
EMA_DECAY = 0.996
TEACHER_LAG = 0.2


class StepCase:
    """One path's training step. `run()` is the whole step; `phases` are its parts, in order.

    A step reads its tokens from a fixed buffer that `prepare(i)` fills with batch i: copying a batch in is never
    timed. Weights move with every step, as in training: a sample is a step, not a repetition.
    """

    def __init__(self, spec: StepSpec) -> None:
        self.spec = spec
        key = spec.key
        self.watch = OpWatch()
        self.context = wrap(key.context, op_of(key.path, spec.chunk), spec.device)
        torch.manual_seed(spec.seed)
        iters, dtype = key.size("iters"), getattr(torch, key.dtype)
        model = LoopedModel(spec.size, iters, watchable(self.context.call, self.watch))
        self.model = model.to(device=spec.device, dtype=dtype)
        self.teacher = lagging_copy(self.model)
        on_gpu = spec.device.startswith("cuda")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, capturable=on_gpu)
        self.batches = make_batches(spec)
        self.tokens = self.batches[0].clone()
        self.student_forward: Callable[[Tensor], Tensor] = self.model
        self.teacher_forward: Callable[[Tensor], Tensor] = self.teacher
        self.steps_done = 0
        self.run: Callable[[], None] = self._run
        self._student: Tensor | None = None
        self._target: Tensor | None = None
        self._loss: Tensor | None = None
        self.phases: tuple[Phase, ...] = (
            Phase("fwd", self._fwd),
            Phase("teacher", self._teacher),
            Phase("retr", self._retr),
            Phase("bwd", self._bwd),
            Phase("opt", self._opt),
            Phase("ema", self._ema),
        )

    def _run(self) -> None:
        for phase in self.phases:
            phase.run()
        self.steps_done += 1

    def prepare(self, index: int) -> None:
        """Bring batch `index` in and drop what the last step made."""
        self._student = self._target = self._loss = None
        self.tokens.copy_(self.batches[index % len(self.batches)])

    def outputs(self) -> Outputs:
        """What the last step made: `loss` and the student's representation `h`."""
        made = {"loss": self._loss, "h": self._student}
        return {name: value.detach() for name, value in made.items() if value is not None}

    def weights(self) -> tuple[Tensor, ...]:
        """Student and teacher weights, detached, in a fixed order."""
        both = (*self.model.parameters(), *self.teacher.parameters())
        return tuple(weight.detach() for weight in both)

    def _fwd(self) -> None:
        self.watch.line = "fwd.kda"
        with self.context.around():
            self._student = self.student_forward(self.tokens)

    def _teacher(self) -> None:
        self.watch.line = "teacher.kda"
        with torch.no_grad(), self.context.around():
            self._target = self.teacher_forward(self.tokens)

    def _retr(self) -> None:
        assert self._student is not None
        assert self._target is not None
        with self.context.around():
            self._loss = retrieval_loss(self._student, self._target)

    def _bwd(self) -> None:
        assert self._loss is not None
        self.optimizer.zero_grad(set_to_none=True)
        self._loss.backward()  # type: ignore[no-untyped-call]

    def _opt(self) -> None:
        self.optimizer.step()

    @torch.no_grad()
    def _ema(self) -> None:
        torch._foreach_lerp_(list(self.teacher.parameters()), list(self.model.parameters()), 1 - EMA_DECAY)


@torch.no_grad()
def lagging_copy(model: LoopedModel) -> LoopedModel:
    """The teacher: the student's weights a little off, as an average that lags behind, so that losses are not 0."""
    teacher = copy.deepcopy(model).requires_grad_(False)
    for weight in teacher.parameters():
        weight.add_(TEACHER_LAG * weight.abs().mean() * torch.randn(weight.shape).to(weight))
    teacher.op = model.op
    return teacher


def op_of(path: str, chunk: int) -> Op:
    """q, k, v, g, beta → o on `path`; on `copy` the op is ablated: o is a copy of v."""
    if path == COPY_PATH:
        return lambda q, k, v, g, beta: v.clone()

    def call(*args: Tensor) -> Tensor:
        return kda(*args, chunk=chunk, path=path)[0]

    return call


def make_batches(spec: StepSpec) -> Sequence[Tensor]:
    """Token batches [B, T] int64, drawn on the CPU's generator, so that GPU and CPU see the same."""
    generator = torch.Generator().manual_seed(spec.seed * 1_000_003 + 1)
    shape = (spec.key.size("B"), spec.key.size("T"))
    return tuple(
        torch.randint(spec.size.vocabulary, shape, generator=generator).to(spec.device) for _ in range(spec.batches)
    )
