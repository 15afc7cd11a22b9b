# mypy: ignore-errors
"""Products with the states, HOME: one program a group of two chunks and head, after both recurrences.

S is kept at a group's start and dS at its end; those between its chunks are never made. The sums over V are taken for
all 32 rows against S and dS, and are brought to each chunk's own states at the end. With 0 and 1 for the chunks and D
for exp G_C, S1 = D0 S + Kd0^T V'0 and dS0 = D1 dS + Qs1^T dO1 - Kb1^T X1, so that

    dO1 S1^T = (dO1 S^T) D0 + (dO1 V'0^T) Kd0      X1 S1^T = (X1 S^T) D0 + (X1 V'0^T) Kd0
    V'0 dS0^T = (V'0 dS^T) D1 + (V'0 dO1^T) Qs1 - (V'0 X1^T) Kb1

and sum_v S dS0 and sum_v S1 dS follow from dO1 S^T, X1 S^T and V'0 dS^T without another sum over V.

With X = A^T dV' two products of the textbook form fall away: dL = -(X V'^T)[>], since A^T [dV' (beta V)^T +
dW (beta K exp G)^T] A^T = X U^T + Y W^T, Y = A^T dW = -X S^T and U = V' + W S.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import dot, state_at
from kdaprof.kda.fused.kernels.recur import load_decay


@triton.jit
def both(ptr, cols, K: tl.constexpr, RECORD: tl.constexpr):
    """Columns of a `[C, K]` matrix of both records of a group, one below the other: 32 rows."""
    row = tl.arange(0, 32)
    return tl.load(ptr + (row // 16 * RECORD + row % 16 * K)[:, None] + cols[None, :])


@triton.jit
def across(square):
    """Of `[32, 32]`, the rows of the second chunk and columns of the first; the rest is 0."""
    row = tl.arange(0, 32)
    return tl.where((row >= 16)[:, None] & (row < 16)[None, :], square, 0.0)


@triton.jit(do_not_specialize=["T", "H", "NC"])
def kdaprof_kda_bwd_state(
    rec, grec, q, k, v, beta, do, dv, gq, gk, gy, scale, T, H, NC,
    K: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr, GRECORD: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Backward, stage 2, HOME: dv; dP, dL and what dq, dk and dbeta get through the state. Grid: B H NC / 2.

    gq, gk, gy are dq, dk, dg, which hold the states and which the next stage overwrites. K = V, a power of
    two, and T is a multiple of 32.
    """
    n = tl.program_id(0).to(tl.int64)
    groups = NC // 2
    bh = n // groups
    b = bh // H
    first = (b * T + (n - bh * groups) * 32) * H + (bh - b * H)
    r = rec + n * (2 * RECORD)
    out = grec + n * (2 * GRECORD)
    row = tl.arange(0, 32)
    ck = tl.arange(0, K)
    q += first * K
    k += first * K
    v += first * K
    do += first * K
    dv += first * K
    gq += first * K
    gk += first * K
    gy += first * K
    bt = tl.load(beta + first + row * H)[:, None]
    dp = tl.zeros([32, 32], tl.float32)
    dl = tl.zeros([32, 32], tl.float32)
    through_q = tl.zeros([32, K], tl.float32)
    through_k = tl.zeros([32, K], tl.float32)
    y = tl.zeros([32, K], tl.float32)
    sds = tl.zeros([K], tl.float32)
    db = tl.zeros([32], tl.float32)
    for v0 in tl.range(0, K, BV, num_stages=STAGES):
        cv = v0 + tl.arange(0, BV)
        here = row[:, None] * (H * K) + cv[None, :]
        dot_ = tl.load(do + here)
        vn = both(r + 32 * K, cv, K, RECORD)
        x = both(out, cv, K, GRECORD)
        s = tl.load(state_at(gq, gk, ck, cv, H * K, K))
        ds = tl.load(state_at(gy, dv, ck, cv, H * K, K))
        vt = tl.load(v + here)
        dp = dot(dot_, tl.trans(vn), dp, PRECISION)
        dl = dot(x, tl.trans(vn), dl, PRECISION)
        through_q = dot(dot_, tl.trans(s), through_q, PRECISION)
        y = dot(x, tl.trans(s), y, PRECISION)
        through_k = dot(vn, tl.trans(ds), through_k, PRECISION)
        sds += tl.sum(s * ds, 1)
        db += tl.sum(x * vt, 1)
        # dS in these columns of dv is read: the product above took it through shared memory.
        tl.store(dv + here, x * bt)
    # To the state before each chunk, and to the gradient of the one behind it.
    upper = (row < 16)[:, None]
    decay0 = load_decay(r, K, K)
    decay1 = load_decay(r + RECORD, K, K)
    into = tl.where(upper, 1.0, decay0[None, :])
    out_of = tl.where(upper, decay1[None, :], 1.0)
    at_k = row[:, None] * (H * K) + ck[None, :]
    grown = both(r, ck, K, RECORD)
    qs = tl.load(q + at_k) * grown * scale
    kb = tl.load(k + at_k) * grown * bt
    kd = both(r + 16 * K, ck, K, RECORD)
    sds0 = sds * decay1 + tl.sum(tl.where(upper, 0.0, qs * through_q - kb * y), 0)
    sds1 = sds * decay0 + tl.sum(tl.where(upper, kd * through_k, 0.0), 0)
    through_k = dot(tl.trans(across(dp)), qs, through_k * out_of, PRECISION)
    through_k = dot(tl.trans(across(-dl)), kb, through_k, PRECISION)
    through_q = dot(across(dp), kd, through_q * into, PRECISION)
    y = dot(across(dl), kd, y * into, PRECISION)
    tl.debug_barrier()  # every state and X is read
    own = upper == (row < 16)[None, :]
    column = out + (row // 16 * GRECORD + row % 16)[:, None] + (row % 16)[None, :] * 32
    tl.store(column, dp * scale, mask=own)
    tl.store(column + 16, -dl, mask=own)
    tl.store(out + 512 + ck, sds0)
    tl.store(out + GRECORD + 512 + ck, sds1)
    tl.store(out + row // 16 * GRECORD + 512 + K + row % 16, db)
    tl.store(gq + at_k, through_q * scale)
    tl.store(gk + at_k, through_k)
    tl.store(gy + at_k, -y)
