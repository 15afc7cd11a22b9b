# mypy: ignore-errors
"""Products with the states where each chunk's are kept: one program a chunk and head, after both recurrences.

See `state` for the way that keeps every second one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import dot, finish, load_tile, store_tile


@triton.jit(do_not_specialize=["T", "H", "NC"])
def kdaprof_kda_bwd_kept(
    rec, v, beta, do, grec, dv, gq, gk, gy, scale, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr,
    PAIRS: tl.constexpr, GRECORD: tl.constexpr, SPARE: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Backward, stage 2, not HOME: dv; dP, dL and what dq, dk and dbeta get through the state. Grid: B H NC.

    gq, gk, gy are dq, dk, dg, which the next stage overwrites; with SPARE they lie in the gradient record.
    """
    n = tl.program_id(0).to(tl.int64)
    bh = n // NC
    t0 = (n - bh * NC) * 16
    b = bh // H
    first = (b * T + t0) * H + (bh - b * H)
    out = grec + n * GRECORD
    state = out + PAIRS
    row = tl.arange(0, 16)
    ck = tl.arange(0, KP)
    cb = tl.arange(0, BV)
    live = (t0 + row) < T
    step = H * V
    v += first * V
    do += first * V
    dv += first * V
    bt = tl.load(beta + first + row * H, mask=live, other=0.0).to(tl.float32)
    dp = tl.zeros([16, 16], tl.float32)
    dl = tl.zeros([16, 16], tl.float32)
    db = tl.zeros([16], tl.float32)
    through_q = tl.zeros([16, KP], tl.float32)
    through_k = tl.zeros([16, KP], tl.float32)
    y = tl.zeros([16, KP], tl.float32)
    sds = tl.zeros([KP], tl.float32)
    mk = (ck < K)[:, None]
    for v0 in tl.range(0, V, BV, num_stages=STAGES):
        cv = v0 + cb
        dot_ = load_tile(do + v0, row, cb, step, live, BV, BV)
        vn = tl.load(rec + n * RECORD + 32 * K + row[:, None] * V + cv[None, :])
        x = tl.load(state + 2 * K * V + row[:, None] * V + cv[None, :])
        s = tl.load(state + ck[:, None] * V + cv[None, :], mask=mk, other=0.0)
        ds = tl.load(state + K * V + ck[:, None] * V + cv[None, :], mask=mk, other=0.0)
        vt = load_tile(v + v0, row, cb, step, live, BV, BV)
        dp = dot(dot_, tl.trans(vn), dp, PRECISION)
        dl = dot(x, tl.trans(vn), dl, PRECISION)
        through_q = dot(dot_, tl.trans(s), through_q, PRECISION)
        y = dot(x, tl.trans(s), y, PRECISION)
        through_k = dot(vn, tl.trans(ds), through_k, PRECISION)
        sds += tl.sum(s * ds, 1)
        db += tl.sum(x * vt, 1)
        store_tile(dv + v0, x * bt[:, None], row, cb, step, live, BV, BV)
    finish(
        out, gq + first * K, gk + first * K, gy + first * K, dp, dl, through_q, through_k, y, sds, db, scale, row, ck,
        live, H * K, K, KP, SPARE,
    )  # fmt: skip
