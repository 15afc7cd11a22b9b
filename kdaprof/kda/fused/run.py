"""From tensors to launches, with a plan in hand: outputs, workspace, grids. Every microsecond of the host counts."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch
from torch import Tensor

from kdaprof.kda.fused.plan import BackwardPlan, Dtypes, ForwardPlan
from kdaprof.kda.fused.sizes import chunks_of
from kdaprof.kda.fused.stage import Stage, addresses


def on(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Triton launches on the current device, which need not be the tensors'."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(device)


def dtypes_of(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None) -> Dtypes:
    """What a plan needs to know of a call's tensors."""
    return (q.dtype, k.dtype, v.dtype, g.dtype, beta.dtype, None if h0 is None else h0.dtype)


def run_forward(
    plan: ForwardPlan, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None, scale: float,
    final_state: bool,
) -> tuple[Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Outputs of contiguous inputs, and the records that the backward wants.

    o `[B, T, H, V]` in v's dtype, the final state `[B, H, K, V]` in float32.
    """
    batch, time, heads, k_dim = q.shape
    device = q.device
    chunks = chunks_of(time)
    rows = batch * heads
    with on(device):
        rec = torch.empty(rows * chunks * plan.record, dtype=torch.float32, device=device)
        shape = (batch, heads, k_dim, v.shape[3])
        if v.numel() == 0:
            ht = torch.empty(shape, dtype=torch.float32, device=device) if final_state else None
            if ht is not None and ht.numel():
                ht.zero_() if h0 is None else ht.copy_(h0)
            return torch.empty_like(v), ht, rec
        tensors = (q, k, v, g, beta, h0, rec)
        at, aligned = addresses(tensors)
        short = aligned and plan.compiled
        q_, k_, v_, g_, beta_, h0_, rec_ = at if short else tensors
        plan.prepare(rows * chunks, aligned, q_, k_, g_, beta_, rec_, scale, time, heads, chunks, 0)
        # What the first launch does without is made while it runs. A new tensor's address is a multiple of 16.
        o = torch.empty_like(v)
        ht = torch.empty(shape, dtype=torch.float32, device=device) if final_state else None
        o_, ht_ = addresses((o, ht))[0] if short else (o, ht)
        plan.recur(rows * plan.blocks, aligned, rec_, q_, k_, v_, beta_, h0_, o_, ht_, scale, time, heads, chunks)
    return o, ht, rec


def run_backward(
    plan: BackwardPlan, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None, rec: Tensor,
    do: Tensor | None, dht: Tensor | None, scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Gradients of contiguous inputs, each in its input's dtype: dq, dk, dv, dg, dbeta, dh0 (None without h0)."""
    batch, time, heads, _ = q.shape
    device = q.device
    chunks = chunks_of(time)
    rows = batch * heads
    with on(device):
        dq, dk, dv, dg = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), torch.empty_like(g)
        dh0 = None if h0 is None else torch.empty_like(h0)
        if q.numel() == 0:
            if dh0 is not None and dh0.numel():
                dh0.zero_() if dht is None else dh0.copy_(dht)
            return dq, dk, dv, dg, torch.empty_like(beta), dh0
        if do is None:
            do = torch.zeros_like(v)
        grec = torch.empty(rows * chunks * plan.record, dtype=torch.float32, device=device)
        tensors = (q, k, v, g, beta, h0, rec, do, dht, dq, dk, dv, dg, dh0, grec)
        at, aligned = addresses(tensors)
        short = aligned and plan.compiled
        q_, k_, v_, g_, beta_, h0_, rec_, do_, dht_, dq_, dk_, dv_, dg_, dh0_, grec_ = at if short else tensors
        plan.recur(
            2 * rows * plan.blocks, aligned, rec_, grec_, q_, k_, beta_, h0_, do_, dht_, dh0_, dq_, dk_, dg_, dv_,
            scale, time, heads, chunks,
        )  # fmt: skip
        if plan.home:
            plan.state(
                rows * chunks // 2, aligned, rec_, grec_, q_, k_, v_, beta_, do_, dv_, dq_, dk_, dg_, scale, time,
                heads, chunks,
            )  # fmt: skip
        else:
            plan.state(
                rows * chunks, aligned, rec_, v_, beta_, do_, grec_, dv_, dq_, dk_, dg_, scale, time, heads, chunks
            )
        dbeta = torch.empty_like(beta)  # nothing before needs it
        plan.pairs(
            rows * chunks, aligned, q_, k_, g_, beta_, grec_, dq_, dk_, dg_, dbeta, time, heads, chunks, 0
        )  # fmt: skip
    return dq, dk, dv, dg, dbeta, dh0


@dataclass(frozen=True, slots=True)
class Job:
    """A stage and what `Stage.compile` takes for it."""

    stage: Stage
    arguments: tuple[object, ...]


def forward_jobs(plan: ForwardPlan, dtypes: Dtypes, final_state: bool) -> list[Job]:
    """What compiles the kernels for `run_forward`'s launches, the slowest first."""
    q, k, v, g, beta, h0 = dtypes
    fp32 = torch.float32
    ht = fp32 if final_state else None
    return [
        Job(plan.prepare, (q, k, g, beta, fp32, 1.0, 16, 1, 2, 0)),
        Job(plan.recur, (fp32, q, k, v, beta, h0, v, ht, 1.0, 16, 1, 2)),
    ]


def backward_jobs(plan: BackwardPlan, dtypes: Dtypes, has_dht: bool) -> list[Job]:
    """What compiles the kernels for `run_backward`'s launches, the slowest first."""
    q, k, v, g, beta, h0 = dtypes
    fp32 = torch.float32
    dht = fp32 if has_dht else None
    states = (fp32, fp32, q, k, v, beta, v) if plan.home else (fp32, v, beta, v, fp32)
    return [
        Job(plan.pairs, (q, k, g, beta, fp32, q, k, g, beta, 16, 1, 2, 0)),
        Job(plan.state, (*states, v, q, k, g, 1.0, 16, 1, 2)),
        Job(plan.recur, (fp32, fp32, q, k, beta, h0, v, dht, h0, q, k, g, v, 1.0, 16, 1, 2)),
    ]
