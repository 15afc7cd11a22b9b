"""The eager door: one autograd Function, forward and backward in Triton, first order only."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from kdaprof.errors import UsageError
from kdaprof.kda.fused import hooks

PRECISIONS = ("tf32x3", "ieee", "tf32")


def check_precision(precision: str) -> None:
    """Raise UsageError for a name that is none of `PRECISIONS`."""
    if precision not in PRECISIONS:
        raise UsageError(f"precision {precision!r} is none of {', '.join(PRECISIONS)}")


@lru_cache(maxsize=1)
def _launch() -> Any:
    """The module that launches, imported by the first call: it imports Triton."""
    return importlib.import_module("kdaprof.kda.fused.launch")


def contiguous(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """A call's tensors as the kernels take them; a copy of what is not contiguous."""
    return (
        q.contiguous(), k.contiguous(), v.contiguous(), g.contiguous(), beta.contiguous(),
        None if h0 is None else h0.contiguous(),
    )  # fmt: skip


def _plain(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None) -> bool:
    """Whether nobody differentiates this call, in either mode, and no transform looks on: autograd need not see it."""
    if torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or g.requires_grad or beta.requires_grad
        or (h0 is not None and h0.requires_grad)
    ):  # fmt: skip
        return False
    return forward_ad._current_level < 0 and not torch._C._are_functorch_transforms_active()


class FusedKda(torch.autograd.Function):
    """Saves its inputs and the forward's records; the backward makes the states again."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None, scale: float,
        final_state: bool, precision: str,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """See `fused_kda`."""
        q, k, v, g, beta, h0 = contiguous(q, k, v, g, beta, h0)
        o, ht, rec = _launch().forward(
            q, k, v, g, beta, h0, scale, final_state, precision, train=True in ctx.needs_input_grad
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, g, beta, h0, rec)
        ctx.scale, ctx.precision = scale, precision
        ctx.set_materialize_grads(False)
        return o, ht

    @staticmethod
    def backward(ctx: Any, do: Tensor | None, dht: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of q, k, v, g, beta and the initial state (None without one)."""
        # Where nobody differentiates this pass, torch's guard against a second derivative has nothing to guard.
        return _gradients_once(ctx, do, dht) if torch.is_grad_enabled() else _gradients(ctx, do, dht)


def _gradients(ctx: Any, do: Tensor | None, dht: Tensor | None) -> tuple[Tensor | None, ...]:
    if hooks.on_backward is not None:
        hooks.on_backward()
    q, k, v, g, beta, h0, rec = ctx.saved_tensors
    do = None if do is None else do.contiguous()
    dht = None if dht is None else dht.contiguous()
    if do is None and dht is None:
        return (None,) * 9
    # All come out of the same kernels; autograd drops those that nobody asked for.
    return (*_launch().backward(q, k, v, g, beta, h0, rec, do, dht, ctx.scale, ctx.precision), None, None, None)


_gradients_once = once_differentiable(_gradients)


def fused_kda(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *, scale: float,
    initial_state: Tensor | None = None, output_final_state: bool = False, precision: str = "tf32x3",
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """KDA by our Triton kernels: two launches forward, three backward.

    q, k, g `[B, T, H, K]`, v `[B, T, H, V]`, beta `[B, T, H]`, initial_state `[B, H, K, V]`; g is the natural-log
    decay, <= 0. Float32, bfloat16 or float16, state and accumulation in float32; K and V multiples of 16 up to
    128; any strides (tensors that are not contiguous are copied). Returns o `[B, T, H, V]` in v's dtype and the
    final state in float32, or None. Shapes are the caller's to check (`support.refusal`, `kdaprof.kda.kda`).

    `precision` of the matrix products: "tf32x3" (three tf32 passes, float32 accuracy), "ieee" (float32 FMA),
    "tf32" (about 1e-3). Half-precision inputs use one tf32 pass, which is finer than they are.
    Deterministic; differentiable once: a second derivative raises.
    """
    check_precision(precision)
    if _plain(q, k, v, g, beta, initial_state):
        x = contiguous(q, k, v, g, beta, initial_state)
        o, ht, _ = _launch().forward(*x, scale, output_final_state, precision, keep=False)
        return o, ht
    o, ht = FusedKda.apply(q, k, v, g, beta, initial_state, scale, output_final_state, precision)  # type: ignore[no-untyped-call]
    return o, ht
