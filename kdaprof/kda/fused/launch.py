"""From tensors to launches: workspace, grids, kernels. The only module here that imports the kernels."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from kdaprof.kda.fused.config import KernelConfig, block, choose, pad
from kdaprof.kda.fused.kernels import gradients, prepare, recur

CHUNK = 16


@lru_cache(maxsize=256)
def _config(device: torch.device, k_dim: int, v_dim: int) -> KernelConfig:
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    return choose(capability, k_dim, v_dim)


def record_elements(k_dim: int, v_dim: int, *, backward: bool) -> int:
    """Float32 elements of one chunk's record (layout: `kernels/common.py`)."""
    forward = 3 * CHUNK * k_dim + CHUNK * v_dim + 2 * CHUNK * CHUNK + k_dim
    return forward + 2 * k_dim * v_dim + 2 * CHUNK * v_dim if backward else forward


def _dot_precision(dtype: torch.dtype, precision: str) -> str:
    """bf16 and fp16 inputs carry no more bits than tf32, so their dots need none of tf32x3's passes."""
    return precision if dtype is torch.float32 or precision == "ieee" else "tf32"


def forward(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None, scale: float,
    final_state: bool, precision: str,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Outputs of contiguous inputs: o `[B, T, H, V]` in v's dtype, the final state `[B, H, K, V]` in float32."""
    batch, time, heads, k_dim = q.shape
    v_dim = v.shape[3]
    o = torch.empty_like(v)
    ht = torch.empty((batch, heads, k_dim, v_dim), dtype=torch.float32, device=q.device) if final_state else None
    if o.numel() == 0:
        if ht is not None and ht.numel():
            ht.zero_() if h0 is None else ht.copy_(h0)
        return o, ht
    chunks = -(-time // CHUNK)
    rows = batch * heads
    config = _config(q.device, k_dim, v_dim)
    record = record_elements(k_dim, v_dim, backward=False)
    rec = torch.empty(rows * chunks * record, dtype=torch.float32, device=q.device)
    dots = _dot_precision(q.dtype, precision)
    k_pad = pad(k_dim)
    bv = block(v_dim, config.recur_bv)
    prepare.kdaprof_kda_fwd_prepare[(rows * chunks,)](
        q, k, v, g, beta, rec, scale, time, heads, chunks,
        K=k_dim, KP=k_pad, V=v_dim, VP=pad(v_dim), RECORD=record, PRECISION=dots,
        num_warps=config.prepare_warps, num_stages=1,
        maxnreg=config.prepare_registers,
    )  # fmt: skip
    recur.kdaprof_kda_fwd_recur[(rows * (v_dim // bv),)](
        rec, h0, o, ht, time, heads, chunks,
        K=k_dim, KP=k_pad, V=v_dim, BV=bv, RECORD=record, HAS_H0=h0 is not None, HAS_HT=final_state,
        PRECISION=dots, STAGES=config.recur_stages, num_warps=config.recur_warps,
        num_stages=config.recur_stages,
    )  # fmt: skip
    return o, ht


def backward(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None, do: Tensor | None,
    dht: Tensor | None, scale: float, precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Gradients of contiguous inputs, each in its input's dtype: dq, dk, dv, dg, dbeta, dh0 (None without h0)."""
    batch, time, heads, k_dim = q.shape
    v_dim = v.shape[3]
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    dg, dbeta = torch.empty_like(g), torch.empty_like(beta)
    dh0 = None if h0 is None else torch.empty_like(h0)
    if q.numel() == 0:
        if dh0 is not None and dh0.numel():
            dh0.zero_() if dht is None else dh0.copy_(dht)
        return dq, dk, dv, dg, dbeta, dh0
    do = torch.zeros_like(v) if do is None else do
    chunks = -(-time // CHUNK)
    rows = batch * heads
    config = _config(q.device, k_dim, v_dim)
    record = record_elements(k_dim, v_dim, backward=True)
    rec = torch.empty(rows * chunks * record, dtype=torch.float32, device=q.device)
    dots = _dot_precision(q.dtype, precision)
    sizes: dict[str, Any] = {"K": k_dim, "KP": pad(k_dim), "V": v_dim, "RECORD": record, "PRECISION": dots}
    bv = block(v_dim, config.recur_bv)
    prepare.kdaprof_kda_bwd_prepare[(rows * chunks,)](
        q, k, v, g, beta, rec, scale, time, heads, chunks, VP=pad(v_dim), **sizes,
        num_warps=config.prepare_warps, num_stages=1,
        maxnreg=config.prepare_registers,
    )  # fmt: skip
    recur.kdaprof_kda_bwd_recur[(2 * rows * (v_dim // bv),)](
        rec, h0, do, dht, dh0, time, heads, chunks, BV=bv, HAS_H0=h0 is not None, HAS_DHT=dht is not None,
        STAGES=config.bwd_recur_stages, **sizes, num_warps=config.recur_warps,
        num_stages=config.bwd_recur_stages,
    )  # fmt: skip
    gradients.kdaprof_kda_bwd_gradients[(rows * chunks,)](
        q, k, v, g, beta, do, rec, dq, dk, dv, dg, dbeta, scale, time, heads, chunks,
        BV=block(v_dim, config.gradient_bv), **sizes, num_warps=config.gradient_warps, num_stages=1,
        maxnreg=config.gradient_registers,
    )  # fmt: skip
    return dq, dk, dv, dg, dbeta, dh0
