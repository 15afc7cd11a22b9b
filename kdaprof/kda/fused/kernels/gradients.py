# mypy: ignore-errors
"""Token-parallel gradients: one program a chunk and head, from the records of the two recurrences.

With X = A^T dV' two products of the textbook form fall away: dL = -(X V'^T)[>], since A^T [dV' (beta V)^T +
dW (beta K exp G)^T] A^T = X U^T + Y W^T, Y = A^T dW = -X S^T and U = V' + W S. Diagonal pairs (i = j) are added
to dq and dk apart from the others: in dg they cancel exactly, and would leave only their rounding.

The pairs are walked by key column j from the last to the first; `d[i]` is the exact sum g_{j+1} + ... + g_i for
rows i > j, so exp2(d) <= 1 whatever g is. A thread owns a channel (`load_columns`): the triangle costs
120 steps a thread, and nothing is exchanged between threads but the columns of dP and dL.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import LOG2E, dot, load_columns, load_tile, pick_row, store_tile


@triton.jit(do_not_specialize=["T", "H", "NC"])
def kdaprof_kda_bwd_gradients(
    q, k, v, g, beta, do, rec, dq, dk, dv, dg, dbeta, scale, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr,
    RECORD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Backward, stage 3. Grid: B H NC."""
    n = tl.program_id(0).to(tl.int64)
    bh = n // NC
    t0 = (n - bh * NC) * 16
    b = bh // H
    first = (b * T + t0) * H + (bh - b * H)
    small = rec + n * RECORD + 48 * K + 16 * V
    state = small + 512 + K
    row = tl.arange(0, 16)
    rows = row[:, None]
    ck = tl.arange(0, KP)
    cb = tl.arange(0, BV)
    live = (t0 + row) < T
    step = H * K
    vstep = H * V
    q += first * K
    k += first * K
    g += first * K
    v += first * V
    do += first * V
    dv += first * V
    bt = tl.load(beta + first + row * H, mask=live, other=0.0).to(tl.float32)

    # dP and dL contract over V; dv and V's share of dbeta come along.
    dp = tl.zeros([16, 16], tl.float32)
    dl = tl.zeros([16, 16], tl.float32)
    db = tl.zeros([16], tl.float32)
    for v0 in range(0, V, BV):
        cv = v0 + cb
        dot_ = load_tile(do + v0, row, cb, vstep, live, BV, BV)
        vn = tl.load(state + 2 * K * V + row[:, None] * V + cv[None, :])
        x = tl.load(state + 2 * K * V + 16 * V + row[:, None] * V + cv[None, :])
        vt = load_tile(v + v0, row, cb, vstep, live, BV, BV)
        dp = dot(dot_, tl.trans(vn), dp, PRECISION)
        dl = dot(-x, tl.trans(vn), dl, PRECISION)
        db += tl.sum(x * vt, 1)
        store_tile(dv + v0, x * bt[:, None], row, cb, vstep, live, BV, BV)
    dp = dp * scale
    diagonal = tl.sum(tl.where(row[:, None] == row[None, :], dp, 0.0), 1)
    # Through memory (the record's P and A, free by now), so that the loop can read them by columns.
    tl.store(small + row[:, None] + row[None, :] * 16, dp)
    tl.store(small + 256 + row[:, None] + row[None, :] * 16, dl)
    tl.debug_barrier()

    qt = load_columns(q, step, ck, T - t0, K, KP)
    kt = load_columns(k, step, ck, T - t0, K, KP)
    d = tl.zeros([16, KP], tl.float32)
    total = tl.zeros([KP], tl.float32)
    to_end = tl.zeros([16, KP], tl.float32)
    dq_pair = tl.zeros([16, KP], tl.float32)
    r = tl.zeros([16, KP], tl.float32)
    col = tl.zeros([16, KP], tl.float32)
    gt = load_columns(g, step, ck, T - t0, K, KP) * LOG2E
    for j in tl.static_range(15, -1, -1):
        gj = pick_row(gt, j)
        if j < 15:
            kj = pick_row(kt, j)
            dpj = tl.load(small + j * 16 + row)
            dlj = tl.load(small + 256 + j * 16 + row)
            decay = tl.exp2(d)
            key = decay * kj[None, :]
            below = rows > j
            dq_pair = tl.where(below, dq_pair + dpj[:, None] * key, dq_pair)
            r = tl.where(below, r + dlj[:, None] * key, r)
            mixed = dpj[:, None] * qt + (dlj * bt)[:, None] * kt
            colj = tl.sum(tl.where(below, mixed * decay, 0.0), 0)
            col = tl.where(rows == j, colj[None, :], col)
        total += gj
        to_end = tl.where(rows < j, to_end + gj[None, :], to_end)
        d = tl.where(rows >= j, d + gj[None, :], d)

    # What goes through the state, again by blocks of V.
    through_q = tl.zeros([16, KP], tl.float32)
    y = tl.zeros([16, KP], tl.float32)
    through_k = tl.zeros([16, KP], tl.float32)
    sds = tl.zeros([KP], tl.float32)
    mk = (ck < K)[:, None]
    for v0 in range(0, V, BV):
        cv = v0 + cb
        dot_ = load_tile(do + v0, row, cb, vstep, live, BV, BV)
        vn = tl.load(state + 2 * K * V + row[:, None] * V + cv[None, :])
        x = tl.load(state + 2 * K * V + 16 * V + row[:, None] * V + cv[None, :])
        s = tl.load(state + ck[:, None] * V + cv[None, :], mask=mk, other=0.0)
        ds = tl.load(state + K * V + ck[:, None] * V + cv[None, :], mask=mk, other=0.0)
        sds += tl.sum(s * ds, 1)
        through_q = dot(dot_, tl.trans(s), through_q, PRECISION)
        y = dot(-x, tl.trans(s), y, PRECISION)
        through_k = dot(vn, tl.trans(ds), through_k, PRECISION)

    decay = tl.exp2(d)
    through_q = through_q * decay * scale
    through_k = through_k * tl.exp2(to_end)
    y = y * decay + r
    erase = y * bt[:, None]
    store_tile(dq + first * K, through_q + dq_pair + diagonal[:, None] * kt, row, ck, step, live, K, KP)
    grad_k = through_k + erase + col + diagonal[:, None] * qt
    store_tile(dk + first * K, grad_k, row, ck, step, live, K, KP)
    db += tl.sum(kt * y, 1)
    tl.store(dbeta + first + row * H, db.to(dbeta.dtype.element_ty), mask=live)
    # dg_t: pairs and reads at or after t, writes before t, and the state that came in.
    write = kt * through_k
    dg_t = tl.cumsum(qt * (through_q + dq_pair) + kt * (erase - col), 0, reverse=True)
    dg_t += tl.cumsum(write, 0) - write
    dg_t += (sds * tl.exp2(total))[None, :]
    store_tile(dg + first * K, dg_t, row, ck, step, live, K, KP)
