"""The door for torch.compile: custom operators, opaque to the compiler, that neither break nor respecialise.

A custom operator returns tensors only and never an alias: where there is no final state or initial state, the
operators return an empty tensor in its place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kdaprof.kda.fused.function import check_precision, contiguous
from kdaprof.kda.fused.sizes import chunks_of, record_elements


def _nothing(like: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.float32, device=like.device)


@torch.library.custom_op("kdaprof::kda_fwd", mutates_args=())
def kda_fwd(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor | None, scale: float,
    output_final_state: bool, precision: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Forward: o, the final state (empty unless asked for), and the records that the backward wants."""
    from kdaprof.kda.fused import launch  # noqa: PLC0415  imports Triton

    tensors = contiguous(q, k, v, g, beta, initial_state)
    o, ht, rec = launch.forward(*tensors, scale, output_final_state, precision)
    return o, _nothing(q) if ht is None else ht, rec


@kda_fwd.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor | None, scale: float,
    output_final_state: bool, precision: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    batch, time, heads, k_dim = q.shape
    v_dim = v.shape[3]
    o = v.new_empty((batch, time, heads, v_dim))
    ht = q.new_empty((batch, heads, k_dim, v_dim) if output_final_state else (0,), dtype=torch.float32)
    record = record_elements(k_dim, v_dim)
    return o, ht, q.new_empty(batch * heads * chunks_of(time) * record, dtype=torch.float32)


@torch.library.custom_op("kdaprof::kda_bwd", mutates_args=())
def kda_bwd(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor | None,
    rec: Tensor, do: Tensor | None, dht: Tensor | None, scale: float, precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Backward: gradients of q, k, v, g, beta and the initial state (empty without one)."""
    from kdaprof.kda.fused import launch  # noqa: PLC0415

    *grads, dh0 = launch.backward(
        *contiguous(q, k, v, g, beta, initial_state), rec,
        None if do is None else do.contiguous(), None if dht is None else dht.contiguous(), scale, precision,
    )  # fmt: skip
    dq, dk, dv, dg, dbeta = grads
    return dq, dk, dv, dg, dbeta, _nothing(q) if dh0 is None else dh0


@kda_bwd.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor | None,
    rec: Tensor, do: Tensor | None, dht: Tensor | None, scale: float, precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    dq, dk, dv, dg, dbeta = (x.new_empty(x.shape) for x in (q, k, v, g, beta))
    dh0 = _nothing(q) if initial_state is None else initial_state.new_empty(initial_state.shape)
    return dq, dk, dv, dg, dbeta, dh0


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, g, beta, h0, scale, final_state, precision = inputs
    ctx.save_for_backward(q, k, v, g, beta, h0, output[2])
    ctx.scale, ctx.final_state, ctx.precision = scale, final_state, precision
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, do: Tensor | None, dht: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, g, beta, h0, rec = ctx.saved_tensors
    dht = dht if ctx.final_state else None
    if do is None and dht is None:
        return (None,) * 9
    *grads, dh0 = kda_bwd(q, k, v, g, beta, h0, rec, do, dht, ctx.scale, ctx.precision)
    return (*grads, None if h0 is None else dh0, None, None, None)


kda_fwd.register_autograd(_backward, setup_context=_save)


def fused_kda_op(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *, scale: float,
    initial_state: Tensor | None = None, output_final_state: bool = False, precision: str = "tf32x3",
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """`fused_kda` as the operators `kdaprof::kda_fwd` and `kdaprof::kda_bwd`; same arguments and results.

    In eager mode it costs more host time than `fused_kda`; under torch.compile it stays one opaque node.
    """
    check_precision(precision)
    o, ht, _ = kda_fwd(q, k, v, g, beta, initial_state, scale, output_final_state, precision)
    return o, ht if output_final_state else None
