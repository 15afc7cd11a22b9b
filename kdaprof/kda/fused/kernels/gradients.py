# mypy: ignore-errors
"""Token-parallel gradients: one program a chunk and head, from the records of the two recurrences.

With X = A^T dV' two products of the textbook form fall away: dL = -(X V'^T)[>], since A^T [dV' (beta V)^T +
dW (beta K exp G)^T] A^T = X U^T + Y W^T, Y = A^T dW = -X S^T and U = V' + W S. Diagonal pairs (i = j) are added
to dq and dk apart from the others: in dg they cancel exactly, and would leave only their rounding.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import load_row, load_tile, store_tile
from kdaprof.kda.fused.kernels.prepare import LOG2E


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

    # dP and dL contract over V; dv and beta's share of V come along. Vn and X sit behind S and dS.
    dp = tl.zeros([16, 16], tl.float32)
    dl = tl.zeros([16, 16], tl.float32)
    db = tl.zeros([16], tl.float32)
    for v0 in range(0, V, BV):
        cv = v0 + cb
        dot_ = load_tile(do + v0, row, cb, vstep, live, BV, BV)
        vn = tl.load(state + 2 * K * V + row[:, None] * V + cv[None, :])
        x = tl.load(state + 2 * K * V + 16 * V + row[:, None] * V + cv[None, :])
        vt = load_tile(v + v0, row, cb, vstep, live, BV, BV)
        dp = tl.dot(dot_, tl.trans(vn), acc=dp, input_precision=PRECISION)
        dl = tl.dot(-x, tl.trans(vn), acc=dl, input_precision=PRECISION)
        db += tl.sum(x * vt, 1)
        store_tile(dv + v0, x * bt[:, None], row, cb, vstep, live, BV, BV)
    dp = dp * scale
    diagonal = tl.sum(tl.where(row[:, None] == row[None, :], dp, 0.0), 1)
    below = row[:, None] > row[None, :]
    # Through memory (the records' P and A, free by now), so that the loop can read them by columns.
    tl.store(small + row[:, None] * 16 + row[None, :], tl.where(below, dp, 0.0))
    tl.store(small + 256 + row[:, None] * 16 + row[None, :], tl.where(below, dl, 0.0))
    tl.debug_barrier()

    qt = load_tile(q, row, ck, step, live, K, KP)
    kt = load_tile(k, row, ck, step, live, K, KP)
    d = tl.zeros([16, KP], tl.float32)
    tail = tl.zeros([KP], tl.float32)
    to_end = tl.zeros([16, KP], tl.float32)
    dq_pair = tl.zeros([16, KP], tl.float32)
    r = tl.zeros([16, KP], tl.float32)
    col = tl.zeros([16, KP], tl.float32)
    for jj in range(16):
        j = 15 - jj
        alive = (t0 + j) < T
        kj = load_row(k + j * step, ck, alive, K, KP)
        gj = load_row(g + j * step, ck, alive, K, KP) * LOG2E
        dpj = tl.load(small + row * 16 + j)[:, None]
        dlj = tl.load(small + 256 + row * 16 + j)
        decay = tl.exp2(d)
        key = decay * kj[None, :]
        dq_pair += dpj * key
        r += dlj[:, None] * key
        colj = tl.sum((dpj * qt + (dlj * bt)[:, None] * kt) * decay, 0)
        mine = row[:, None] == j
        col = tl.where(mine, colj[None, :], col)
        to_end = tl.where(mine, tail[None, :], to_end)
        tail += gj
        d += tl.where(row[:, None] >= j, gj[None, :], 0.0)

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
        through_q = tl.dot(dot_, tl.trans(s), acc=through_q, input_precision=PRECISION)
        y = tl.dot(-x, tl.trans(s), acc=y, input_precision=PRECISION)
        through_k = tl.dot(vn, tl.trans(ds), acc=through_k, input_precision=PRECISION)

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
    dg_t += (sds * tl.exp2(tail))[None, :]
    store_tile(dg + first * K, dg_t, row, ck, step, live, K, KP)
