# mypy: ignore-errors
"""Products with the states: one program a group of two chunks and head, after both recurrences.

From S at the group's start and dS at its end the program makes S and dS between its chunks, V' and dV' again: that
costs a third more products and saves half of the states' memory and all of V' and dV'.

With X = A^T dV' two products of the textbook form fall away: dL = -(X V'^T)[>], since A^T [dV' (beta V)^T +
dW (beta K exp G)^T] A^T = X U^T + Y W^T, Y = A^T dW = -X S^T and U = V' + W S.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import dot, finish, load_record, load_record_t, load_tile, state_at, store_tile
from kdaprof.kda.fused.kernels.recur import load_decay


@triton.jit
def values(r, vt, s, row, ck, K: tl.constexpr, KP: tl.constexpr, PRECISION: tl.constexpr):
    """V' of a chunk from S at its start."""
    a = load_record(r + 48 * K + 256, row, row, 16, 16)
    u = dot(a, vt * tl.load(r + 48 * K + 512 + K + row)[:, None], tl.zeros_like(vt), PRECISION)
    return dot(-load_record(r, row, ck, K, KP), s, u, PRECISION)


@triton.jit
def value_gradients(r, dot_, ds, row, ck, K: tl.constexpr, KP: tl.constexpr, PRECISION: tl.constexpr):
    """The gradient dV' of a chunk from dS at its end."""
    dvn = dot(load_record_t(r + 48 * K, row, row, 16, 16), dot_, tl.zeros_like(dot_), PRECISION)
    return dot(load_record(r + 32 * K, row, ck, K, KP), ds, dvn, PRECISION)


@triton.jit
def products(
    r, vt, dot_, vn, dvn, s, ds, dp, dl, through_q, through_k, y, sds, db, dv, rows, live, row, cols, step,
    K: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add one chunk's products of a block of V to its sums, and write its dv."""
    a = load_record(r + 48 * K + 256, row, row, 16, 16)
    bt = tl.load(r + 48 * K + 512 + K + row)
    x = dot(tl.trans(a), dvn, tl.zeros_like(dvn), PRECISION)
    vnt = tl.trans(vn)
    st = tl.trans(s)
    dp = dot(dot_, vnt, dp, PRECISION)
    dl = dot(x, vnt, dl, PRECISION)
    through_q = dot(dot_, st, through_q, PRECISION)
    y = dot(x, st, y, PRECISION)
    through_k = dot(vn, tl.trans(ds), through_k, PRECISION)
    sds += tl.sum(s * ds, 1)
    db += tl.sum(x * vt, 1)
    store_tile(dv, x * bt[:, None], rows, cols, step, live, BV, BV)
    return dp, dl, through_q, through_k, y, sds, db


@triton.jit(do_not_specialize=["T", "H", "NC"])
def kdaprof_kda_bwd_state(
    rec, grec, v, do, dv, gq, gk, gy, scale, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr,
    GRECORD: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Backward, stage 2, HOME: dv; dP, dL and what dq, dk and dbeta get through the state. Grid: B H NC / 2.

    gq, gk, gy are dq, dk, dg, which hold the states and which the next stage overwrites.
    """
    n = tl.program_id(0).to(tl.int64)
    groups = NC // 2
    bh = n // groups
    t0 = (n - bh * groups) * 32
    b = bh // H
    first = (b * T + t0) * H + (bh - b * H)
    r0 = rec + n * (2 * RECORD)
    r1 = r0 + RECORD
    out = grec + n * (2 * GRECORD)
    row = tl.arange(0, 16)
    low = row + 16
    ck = tl.arange(0, KP)
    live0 = (t0 + row) < T
    live1 = (t0 + low) < T
    step = H * V
    v += first * V
    do += first * V
    dv += first * V
    gq += first * K
    gk += first * K
    gy += first * K
    dp0 = tl.zeros([16, 16], tl.float32)
    dl0 = tl.zeros([16, 16], tl.float32)
    q0 = tl.zeros([16, KP], tl.float32)
    k0 = tl.zeros([16, KP], tl.float32)
    y0 = tl.zeros([16, KP], tl.float32)
    sds0 = tl.zeros([KP], tl.float32)
    db0 = tl.zeros([16], tl.float32)
    dp1 = tl.zeros([16, 16], tl.float32)
    dl1 = tl.zeros([16, 16], tl.float32)
    q1 = tl.zeros([16, KP], tl.float32)
    k1 = tl.zeros([16, KP], tl.float32)
    y1 = tl.zeros([16, KP], tl.float32)
    sds1 = tl.zeros([KP], tl.float32)
    db1 = tl.zeros([16], tl.float32)
    mk = (ck < K)[:, None]
    for v0 in tl.range(0, V, BV, num_stages=STAGES):
        cv = v0 + tl.arange(0, BV)
        s_at = state_at(gq, gk, ck, cv, H * K, K)
        ds_at = state_at(gy, dv, ck, cv, H * K, K)
        s = tl.load(s_at, mask=mk, other=0.0)
        ds = tl.load(ds_at, mask=mk, other=0.0)
        # Up to the second chunk.
        vn0 = values(r0, load_tile(v, row, cv, step, live0, BV, BV), s, row, ck, K, KP, PRECISION)
        kd = load_record_t(r0 + 32 * K, row, ck, K, KP)
        s = dot(kd, vn0, s * load_decay(r0 + 48 * K + 512, K, KP)[:, None], PRECISION)
        vn1 = values(r1, load_tile(v, low, cv, step, live1, BV, BV), s, row, ck, K, KP, PRECISION)
        # The second chunk.
        do1 = load_tile(do, low, cv, step, live1, BV, BV)
        v_1 = load_tile(v, low, cv, step, live1, BV, BV)
        dvn1 = value_gradients(r1, do1, ds, row, ck, K, KP, PRECISION)
        dp1, dl1, q1, k1, y1, sds1, db1 = products(
            r1, v_1, do1, vn1, dvn1, s, ds, dp1, dl1, q1, k1, y1, sds1, db1, dv, low, live1, row, cv, step,
            K, BV, PRECISION,
        )  # fmt: skip
        # Back to the first chunk; S is read again rather than kept.
        ds = ds * load_decay(r1 + 48 * K + 512, K, KP)[:, None]
        ds = dot(load_record_t(r1 + 16 * K, row, ck, K, KP), do1, ds, PRECISION)
        ds = dot(load_record_t(r1, row, ck, K, KP), -dvn1, ds, PRECISION)
        s = tl.load(s_at, mask=mk, other=0.0)
        do0 = load_tile(do, row, cv, step, live0, BV, BV)
        v_0 = load_tile(v, row, cv, step, live0, BV, BV)
        dvn0 = value_gradients(r0, do0, ds, row, ck, K, KP, PRECISION)
        dp0, dl0, q0, k0, y0, sds0, db0 = products(
            r0, v_0, do0, vn0, dvn0, s, ds, dp0, dl0, q0, k0, y0, sds0, db0, dv, row, live0, row, cv, step,
            K, BV, PRECISION,
        )  # fmt: skip
    tl.debug_barrier()  # S in dq and dk and dS in dg are read; dv's columns hold dS that its values depend on
    finish(out, gq, gk, gy, dp0, dl0, q0, k0, y0, sds0, db0, scale, row, ck, live0, H * K, K, KP, False)
    down = 16 * H * K
    finish(
        out + GRECORD, gq + down, gk + down, gy + down, dp1, dl1, q1, k1, y1, sds1, db1, scale, row, ck, live1, H * K,
        K, KP, False,
    )  # fmt: skip
