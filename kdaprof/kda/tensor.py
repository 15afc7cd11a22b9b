"""The chunk form of GDN-2 (KDA is b = w = beta) in plain tensor operations: the paths `tensor` and `tensor-rows`.

Preparation is batched over all chunks; then a loop over the chunks carries the state, eight operations each, so
the launches of a call grow with T / chunk. That is the shape in which the field runs this op when its fused
kernels are refused, and what kdaprof is there to make visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from kdaprof.kda.shapes import Operands, accumulate_dtype, state_before
from kdaprof.kda.stages import stage
from kdaprof.kda.surroundings import functorch_active, no_autocast

Solver = Literal["triangular", "rows"]

BLOCK: Final = 16
"""Rows that share one anchor. exp leaves float32 at 88.7; 15 tokens of g = -5 between the anchor and a key make 75."""


@dataclass(frozen=True, slots=True)
class _Chunks:
    """What the loop over chunks reads; every tensor is [B, H, N, C, ·] (N chunks of C tokens)."""

    reads: Tensor
    """scale * q * exp(G) [.., C, K]: reads the state at the chunk's begin."""
    intra: Tensor
    """P [.., C, C], lower triangular: reads what the chunk itself wrote."""
    values: Tensor
    """U = A (w * v) [.., C, V]."""
    erases: Tensor
    """W = A (b * k * exp(G)) [.., C, K]."""
    keys: Tensor
    """k * exp(G_C - G) [.., C, K]: carries a write to the chunk's end."""
    decay: Tensor
    """exp(G_C) [.., K, 1]: what the chunk leaves of the state."""


def chunk_gdn2(
    x: Operands,
    *,
    scale: float,
    initial_state: Tensor | None = None,
    chunk: int = 16,
    solver: Solver = "triangular",
) -> tuple[Tensor, Tensor]:
    """Run the chunk form; differentiable by autograd.

    initial_state [B, H, K, V] or None for zeros. Any T ≥ 1: a short last chunk is padded with tokens that leave
    the state as it is. All sums are float32 (float64 for float64 inputs), under autocast too.

    `solver` gives (I + L)^-1: "triangular" through `solve_triangular`, "rows" by forward substitution.

    Range: within each block of 16 tokens the sum of g from the second token on must not fall below -80 in any
    channel (g ≥ -5 holds it), else exp overflows float32. Rounding never depends on a later token: the anchor of
    each exponential is the first row of the query's block.

    Returns: o [B, T, H, V] in v's dtype, and the state after the last token [B, H, K, V].
    """
    T = x.q.shape[1]
    with no_autocast(x.q.device.type):
        with stage("prepare"):
            parts = _prepare(x, scale=scale, chunk=chunk, solver=solver)
        state = state_before(x, initial_state)
        outputs = []
        with stage("recur"):
            for n in range(parts.values.shape[2]):
                fresh = parts.values[:, :, n] - parts.erases[:, :, n] @ state
                outputs.append(parts.reads[:, :, n] @ state + parts.intra[:, :, n] @ fresh)
                state = state * parts.decay[:, :, n] + parts.keys[:, :, n].transpose(-1, -2) @ fresh
        del parts
        return _join(outputs, T).to(x.v.dtype), state


def _split(x: Tensor, chunk: int) -> Tensor:
    """[B, T, H, D] → [B, H, N, C, D], contiguous: the layout of batched matmul. Pads the last chunk with zeros."""
    short = -x.shape[1] % chunk
    if short:
        x = F.pad(x, (0, 0, 0, 0, 0, short))
    B, T, H, D = x.shape
    return x.reshape(B, T // chunk, chunk, H, D).permute(0, 3, 1, 2, 4).contiguous()


def _join(outputs: list[Tensor], tokens: int) -> Tensor:
    """Chunks [B, H, C, V] → [B, T, H, V], contiguous, without the padding of the last chunk."""
    stacked = torch.stack(outputs, dim=2)
    outputs.clear()
    if stacked.requires_grad and not torch.compiler.is_compiling() and not functorch_active():
        # The gradient arrives with T before H; batched matmul wants H before T and would copy it twice a chunk.
        stacked.register_hook(_contiguous)  # type: ignore[no-untyped-call]
    return stacked.permute(0, 2, 3, 1, 4).flatten(1, 2)[:, :tokens].contiguous()


def _contiguous(gradient: Tensor | None) -> Tensor | None:
    """None stays None: an undefined gradient, which stands for zeros."""
    return None if gradient is None else gradient.contiguous()


def _prepare(x: Operands, *, scale: float, chunk: int, solver: Solver) -> _Chunks:
    """Everything that needs no state, for all chunks at once. The order lets each tensor go as soon as it can."""
    acc = accumulate_dtype(x.v.dtype)
    G = _split(x.g.to(acc), chunk).cumsum(-2)
    k = _split(x.k.to(acc), chunk)
    b = _split(x.b.to(acc), chunk)
    w = b if x.w is x.b else _split(x.w.to(acc), chunk)
    bk = k * b
    q = _split(x.q.to(acc), chunk) * scale
    intra, L = _pair_products(q, bk, k, G)
    decayed = G.exp()
    q = q * decayed
    k = k * (G[..., -1:, :] - G).exp()
    del G
    bk = bk * decayed
    rhs = torch.cat([_split(x.v.to(acc), chunk) * w, bk], dim=-1)
    del bk
    with stage("solve"):
        if solver == "triangular":
            solved = torch.linalg.solve_triangular(L, rhs, upper=False, unitriangular=True)
        else:
            solved = _inverse_by_rows(L) @ rhs
    values, erases = solved.split([x.v.shape[3], q.shape[-1]], dim=-1)
    decay = decayed[..., -1, :].unsqueeze(-1)
    return _Chunks(reads=q, intra=intra, values=values, erases=erases, keys=k, decay=decay)


def _pair_products(q: Tensor, bk: Tensor, k: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """P_ij = Σ_d q_id k_jd exp(G_id − G_jd) for j ≤ i, and L_ij = Σ_d bk_id k_jd exp(G_id − G_jd) for j < i.

    exp(G_i − G_j) is factored around the first row of the query's block of 16: the query's factor is then ≤ 1,
    and so is the key's for keys of earlier blocks; only inside the diagonal block does the key's factor grow.
    Keys of later blocks are never multiplied: their factors would overflow, and 0 · inf makes NaN gradients.
    """
    C = G.shape[-2]
    intra, erase = [], []
    for start in range(0, C, BLOCK):
        stop = min(start + BLOCK, C)
        anchor = G[..., start : start + 1, :]
        down = (G[..., start:stop, :] - anchor).exp()
        keys = (k[..., :stop, :] * (anchor - G[..., :stop, :]).exp()).transpose(-1, -2)
        intra.append(_widen((q[..., start:stop, :] * down) @ keys, C))
        erase.append(_widen((bk[..., start:stop, :] * down) @ keys, C))
    if C <= BLOCK:
        return intra[0].tril(), erase[0].tril(-1)
    return torch.cat(intra, dim=-2).tril(), torch.cat(erase, dim=-2).tril(-1)


def _widen(block: Tensor, columns: int) -> Tensor:
    """The block with zeros for the keys of later blocks."""
    missing = columns - block.shape[-1]
    return F.pad(block, (0, missing)) if missing else block


def _inverse_by_rows(L: Tensor) -> Tensor:
    """(I + L)^-1 for strictly lower triangular L [.., C, C], row by row: row i = e_i - L[i, :i] A[:i]."""
    C = L.shape[-1]
    eye = torch.eye(C, dtype=L.dtype, device=L.device)
    inverse = eye[:1].expand(*L.shape[:-2], 1, C)
    for i in range(1, C):
        row = eye[i : i + 1] - L[..., i : i + 1, :i] @ inverse
        inverse = torch.cat([inverse, row], dim=-2)
    return inverse
