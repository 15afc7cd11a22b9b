"""Inputs of the op at its operating point, and the stand-in for the fused kernels that runs on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kdaprof.kda.shapes import Operands
from kdaprof.kda.tensor import chunk_gdn2


@dataclass(frozen=True, slots=True)
class Call:
    """The tensors of one KDA call; every one requires gradients unless made otherwise."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.q, self.k, self.v, self.g, self.beta)

    def with_(self, **changes: Any) -> Call:
        return replace(self, **changes)

    def map(self, change: Callable[[Tensor], Tensor]) -> Call:
        return Call(*(change(x.detach()).requires_grad_(x.requires_grad) for x in self.tensors))

    def to(self, dtype: torch.dtype) -> Call:
        return self.map(lambda x: x.to(dtype))


def make_call(
    B: int = 2,
    T: int = 40,
    H: int = 2,
    K: int = 16,
    V: int = 32,
    *,
    dtype: torch.dtype = torch.float32,
    g: float = 0.054,
    seed: int = 0,
    requires_grad: bool = True,
) -> Call:
    """The field's operating point: unit q and k, beta around 0.5, log decay around -g."""
    random = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=random, dtype=torch.float64)

    call = Call(
        q=F.normalize(normal(B, T, H, K), dim=-1),
        k=F.normalize(normal(B, T, H, K), dim=-1),
        v=normal(B, T, H, V),
        g=-2 * g * torch.rand(B, T, H, K, generator=random, dtype=torch.float64),
        beta=torch.sigmoid(normal(B, T, H)),
    )
    return Call(*(x.to(dtype).requires_grad_(requires_grad) for x in call.tensors))


def weighted(*outputs: Tensor | None) -> Tensor:
    """One number made of all outputs by a fixed random weighting."""
    random = torch.Generator().manual_seed(7)
    terms = [
        (o * torch.randn(o.shape, generator=random, dtype=torch.float64).to(o.dtype)).sum()
        for o in outputs
        if o is not None
    ]
    return torch.stack([term.to(terms[0].dtype) for term in terms]).sum()


def gradients(outputs: tuple[Tensor | None, ...], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Gradients of a fixed random weighting of all outputs."""
    return torch.autograd.grad(weighted(*outputs), inputs)


def relative_l2(x: Tensor, reference: Tensor) -> float:
    distance, norm = (x.detach().double() - reference.detach().double()).norm(), reference.detach().norm().double()
    return float(distance / norm) if norm else float(distance)


class StandIn(torch.autograd.Function):
    """Right answers by the chunk form, and the fused Function's own way of reporting its backward."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(q, k, v, g, beta)
        ctx.scale = scale
        gate = beta.unsqueeze(-1)
        return chunk_gdn2(Operands(q, k, v, g, gate, gate), scale=scale)[0]

    @staticmethod
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor | None, ...]:
        from kdaprof.kda.fused import hooks

        if hooks.on_backward is not None:
            hooks.on_backward()
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
            gate = inputs[4].unsqueeze(-1)
            o, _ = chunk_gdn2(Operands(*inputs[:4], gate, gate), scale=ctx.scale)
            return (*torch.autograd.grad(o, inputs, do), None)


def stand_in_fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    scale: float,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    precision: str = "tf32x3",
) -> tuple[Tensor, Tensor | None]:
    """The surface of `fused_kda`, without the states."""
    assert initial_state is None
    assert not output_final_state
    return StandIn.apply(q, k, v, g, beta, scale), None
