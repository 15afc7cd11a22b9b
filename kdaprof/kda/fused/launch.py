"""From tensors to launches: outputs, workspace, grids. The host's share of a call is counted in microseconds."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from kdaprof.kda.fused.plan import backward_plan, forward_plan
from kdaprof.kda.fused.support import CHUNK


def _on(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Triton launches on the current device, which need not be the tensors'."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(device)


def forward(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None, scale: float,
    final_state: bool, precision: str,
) -> tuple[Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Outputs of contiguous inputs, and the records that `backward` wants.

    o `[B, T, H, V]` in v's dtype, the final state `[B, H, K, V]` in float32.
    """
    batch, time, heads, k_dim = q.shape
    v_dim = v.shape[3]
    device = q.device
    dtypes = (q.dtype, k.dtype, v.dtype, g.dtype, beta.dtype, None if h0 is None else h0.dtype)
    plan = forward_plan(device, dtypes, k_dim, v_dim, final_state, precision)
    chunks = -(-time // CHUNK)
    rows = batch * heads
    with _on(device):
        o = torch.empty_like(v)
        rec = torch.empty(rows * chunks * plan.record, dtype=torch.float32, device=device)
        ht = None
        if final_state:
            ht = torch.empty((batch, heads, k_dim, v_dim), dtype=torch.float32, device=device)
        if o.numel() == 0:
            if ht is not None and ht.numel():
                ht.zero_() if h0 is None else ht.copy_(h0)
            return o, ht, rec
        bits = q.data_ptr() | k.data_ptr() | v.data_ptr() | g.data_ptr() | beta.data_ptr()
        aligned = (bits if h0 is None else bits | h0.data_ptr()) & 15 == 0
        plan.prepare(rows * chunks, aligned, q, k, v, g, beta, rec, scale, time, heads, chunks, 0)
        plan.recur(rows * plan.blocks, aligned, rec, h0, o, ht, time, heads, chunks)
    return o, ht, rec


def backward(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None, rec: Tensor, do: Tensor | None,
    dht: Tensor | None, scale: float, precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Gradients of contiguous inputs, each in its input's dtype: dq, dk, dv, dg, dbeta, dh0 (None without h0)."""
    batch, time, heads, k_dim = q.shape
    v_dim = v.shape[3]
    device = q.device
    dtypes = (q.dtype, k.dtype, v.dtype, g.dtype, beta.dtype, None if h0 is None else h0.dtype)
    plan = backward_plan(device, dtypes, k_dim, v_dim, dht is not None, precision)
    chunks = -(-time // CHUNK)
    rows = batch * heads
    with _on(device):
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        dg, dbeta = torch.empty_like(g), torch.empty_like(beta)
        dh0 = None if h0 is None else torch.empty_like(h0)
        if q.numel() == 0:
            if dh0 is not None and dh0.numel():
                dh0.zero_() if dht is None else dh0.copy_(dht)
            return dq, dk, dv, dg, dbeta, dh0
        if do is None:
            do = torch.zeros_like(v)
        grec = torch.empty(rows * chunks * plan.record, dtype=torch.float32, device=device)
        bits = q.data_ptr() | k.data_ptr() | v.data_ptr() | g.data_ptr() | beta.data_ptr() | do.data_ptr()
        bits = bits if h0 is None else bits | h0.data_ptr()
        aligned = (bits if dht is None else bits | dht.data_ptr()) & 15 == 0
        plan.recur(
            2 * rows * plan.blocks, aligned, rec, grec, h0, do, dht, dh0, time, heads, chunks
        )  # fmt: skip
        plan.state(rows * chunks, aligned, v, beta, do, grec, dv, dq, dk, dg, scale, time, heads, chunks)
        plan.pairs(rows * chunks, aligned, q, k, g, beta, grec, dq, dk, dg, dbeta, time, heads, chunks, 0)
    return dq, dk, dv, dg, dbeta, dh0
