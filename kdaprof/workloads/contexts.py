"""How an op is wrapped: the contexts in which a gate must choose the same path as in a plain call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType

import torch

from kdaprof.errors import UnavailableError
from kdaprof.runs.cells import CONTEXTS

Op = Callable[..., torch.Tensor]
"""q, k, v, g, beta → o."""


@dataclass(frozen=True, slots=True)
class Context:
    """A wrapped op and what must hold around each call.

    `differentiable` is False where no backward exists; `into_leaves` where it can only write `.grad` of the leaves,
    so that `torch.autograd.grad` is refused.
    """

    name: str
    call: Op
    around: Callable[[], contextlib.AbstractContextManager[object]]
    differentiable: bool = True
    into_leaves: bool = False


def wrap(name: str, op: Op, device: str) -> Context:
    """`op` in context `name`.

    Errors: UnavailableError, with the reason, for a context that this torch or machine cannot give.
    """
    if name not in CONTEXTS:
        raise UnavailableError(f"context {name!r} is unknown; known: {', '.join(CONTEXTS)}")
    nothing = contextlib.nullcontext
    kind = device.partition(":")[0]
    match name:
        case "no_grad":
            return Context(name, op, torch.no_grad, differentiable=False)
        case "inference":
            return Context(name, op, torch.inference_mode, differentiable=False)
        case "autocast":
            return Context(name, op, lambda: torch.autocast(kind, dtype=torch.bfloat16))
        case "checkpoint":
            return Context(name, _checkpointed(op, reentrant=False), nothing)
        case "checkpoint-reentrant":
            return Context(name, _checkpointed(op, reentrant=True), nothing, into_leaves=True)
        case "compile":
            return Context(name, torch.compile(_with_own_code(op)), nothing)
        case "vmap":
            return Context(name, _vmapped(op), nothing)
        case "partial-grad":
            return Context(name, _partial(op), nothing)
        case "non-contiguous":
            return Context(name, _strided(op), nothing)
        case "ddp":
            return Context(name, _distributed(op, kind, device), nothing)
    return Context(name, op, nothing)


def as_function(op: Op) -> Op:
    """`op`, an object that is called, as a plain function: contexts that compile give a function its own code."""

    def call(*args: torch.Tensor) -> torch.Tensor:
        return op(*args)

    return call


def _with_own_code(op: Op) -> Op:
    """`op` under a code object of its own.

    Dynamo keeps what it compiled by code object, at most eight variants of each, and runs the ninth eagerly. Cells
    share the code of `op`: with theirs in common, a later cell would find itself traced already, or not compiled.
    """
    if not isinstance(op, FunctionType):
        return op
    own: Op = FunctionType(op.__code__.replace(), op.__globals__, op.__name__, op.__defaults__, op.__closure__)
    return own


def _checkpointed(op: Op, *, reentrant: bool) -> Op:
    from torch.utils.checkpoint import checkpoint  # noqa: PLC0415

    def call(*args: torch.Tensor) -> torch.Tensor:
        # A forward without gradients has nothing to recompute; the reentrant mode would only warn of it.
        if not any(argument.requires_grad for argument in args):
            return op(*args)
        o: torch.Tensor = checkpoint(op, *args, use_reentrant=reentrant)
        return o

    return call


def _vmapped(op: Op) -> Op:
    def call(*args: torch.Tensor) -> torch.Tensor:
        lifted = [argument.unsqueeze(0) for argument in args]
        return torch.vmap(op, randomness="error")(*lifted).squeeze(0)

    return call


def _partial(op: Op) -> Op:
    """Only v takes part in the backward pass."""
    return lambda q, k, v, g, beta: op(q.detach(), k.detach(), v, g.detach(), beta.detach())


def _strided(op: Op) -> Op:
    """Every [B, T, H, …] argument as a transposed view of [B, H, T, …] storage, or of padded rows where T or H is 1."""

    def view(argument: torch.Tensor) -> torch.Tensor:
        transposed = argument.transpose(1, 2).contiguous().transpose(1, 2)
        if not transposed.is_contiguous():
            return transposed
        return torch.nn.functional.pad(argument, (0, 1))[..., :-1]

    return lambda *args: op(*map(view, args))


def _distributed(op: Op, kind: str, device: str) -> Op:
    """The op as the forward of a module wrapped in DistributedDataParallel, world size 1."""
    import torch.distributed as dist  # noqa: PLC0415

    if not dist.is_available():
        raise UnavailableError("context ddp: this torch was built without torch.distributed")
    if not dist.is_initialized():
        store = dist.HashStore()  # type: ignore[attr-defined]  # in torch.distributed, but not in its __all__
        dist.init_process_group("nccl" if kind == "cuda" else "gloo", store=store, rank=0, world_size=1)

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.ones((), device=device))

        def forward(self, *args: torch.Tensor) -> torch.Tensor:
            o: torch.Tensor = op(*args)
            return o * self.gain.to(o.dtype)

    module: Op = torch.nn.parallel.DistributedDataParallel(Scaled())
    return module
