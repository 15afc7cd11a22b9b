"""The `kda` workload: one phase of the op, on one path, in one context, ready to be timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kdaprof.errors import UnavailableError
from kdaprof.kda import kda
from kdaprof.kda.peers import PEERS
from kdaprof.kda.peers.calls import peer_op
from kdaprof.runs.cells import CellKey
from kdaprof.workloads.contexts import Context, Op, as_function, wrap
from kdaprof.workloads.delta.call import DELTA, delta_inputs, delta_op
from kdaprof.workloads.inputs import Inputs, InputSpec, make_inputs
from kdaprof.workloads.library import LIBRARIES

Outputs = dict[str, torch.Tensor]


def trains(phase: str) -> bool:
    """Whether a phase holds a backward pass."""
    return phase in ("bwd", "fwdbwd")


def op_of(path: str, chunk: int) -> Op:
    """q, k, v, g, beta → o on `path`."""

    def call(*args: torch.Tensor) -> torch.Tensor:
        return kda(*args, chunk=chunk, path=path)[0]

    return call


def _op_for(spec: CaseSpec) -> Op:
    key = spec.key
    if key.workload in LIBRARIES:
        return LIBRARIES[key.workload].op(key, spec.device)
    if key.workload in DELTA:
        return delta_op(key, spec.device, trains=trains(key.phase))
    if key.path not in PEERS:
        return op_of(key.path, key.size("C"))
    return as_function(peer_op(key.path, spec.device, context=key.context, trains=trains(key.phase)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSpec:
    """What a process needs to rebuild a cell: the same spec gives the same call on the same values anywhere."""

    key: CellKey
    device: str
    seed: int
    input_sets: int

    def inputs(self) -> InputSpec:
        """The inputs of this cell."""
        grad = trains(self.key.phase)
        return InputSpec(
            shape=self.key.shape, dtype=self.key.dtype, device=self.device, seed=self.seed, requires_grad=grad
        )

    def make_set(self, index: int) -> Inputs:
        """Input set number `index` of this cell."""
        key = self.key
        if key.workload in LIBRARIES:
            made = LIBRARIES[key.workload].inputs
            return made(key, device=self.device, seed=self.seed, index=index, grad=trains(key.phase))
        if key.workload in DELTA:
            return delta_inputs(key.workload, self.inputs(), index)
        return make_inputs(self.inputs(), index)


class OpCase:
    """One cell's call. `prepare(i)` is never timed; `run()` is what the clock sees; `outputs()` is what it made.

    Gradients are returned, not accumulated: `run` holds no gradient accumulation and no optimiser.
    """

    def __init__(self, spec: CaseSpec, sets: tuple[Inputs, ...] | None = None, op: Op | None = None) -> None:
        key = spec.key
        self.spec = spec
        self.context: Context = wrap(key.context, op or _op_for(spec), spec.device)
        if trains(key.phase) and not self.context.differentiable:
            raise UnavailableError(
                f"phase {key.phase} does not exist in context {key.context}: it has no backward pass"
            )
        self.sets = sets or tuple(spec.make_set(index) for index in range(spec.input_sets))
        self.wanted = ("v",) if key.context == "partial-grad" else self.sets[0].names
        self._now = self.sets[0]
        self._out: torch.Tensor | None = None
        self._grads: tuple[torch.Tensor, ...] = ()
        self.run: Callable[[], None] = {"fwd": self.forward, "bwd": self._backward, "fwdbwd": self._both}[key.phase]

    def prepare(self, index: int) -> None:
        """Choose an input set and drop what the last call made; phase bwd runs its forward here."""
        self._out, self._grads = None, ()
        self._drop_leaf_grads()
        self._now = self.sets[index % len(self.sets)]
        if self.spec.key.phase == "bwd":
            self.forward()

    def outputs(self) -> Outputs:
        """What the last `run` made: `o`, and the gradients `dq, dk, dv, dg, dbeta` where there was a backward."""
        made: Outputs = {} if self._out is None else {"o": self._out.detach()}
        return made | {f"d{name}": grad for name, grad in zip(self.wanted, self._grads, strict=False)}

    @property
    def current(self) -> Inputs:
        """The input set of the last `prepare`."""
        return self._now

    def forward(self) -> None:
        """The forward pass alone, which phase bwd runs before the clock starts."""
        with self.context.around():
            self._out = self.context.call(*self._now.tensors())

    def _backward(self) -> None:
        assert self._out is not None
        named = dict(zip(self._now.names, self._now.tensors(), strict=True))
        inputs: list[Any] = [named[name] for name in self.wanted]
        if self.context.into_leaves:
            self._drop_leaf_grads()  # None already, but inside a capture: a `.grad` that is there would be added to
            torch.autograd.backward(self._out, self._now.do)
            self._grads = tuple(tensor.grad for tensor in inputs)
            return
        self._grads = torch.autograd.grad(self._out, inputs, self._now.do)

    def _drop_leaf_grads(self) -> None:
        if self.context.into_leaves:
            for tensor in self._now.tensors():
                tensor.grad = None

    def _both(self) -> None:
        self.forward()
        self._backward()
