# mypy: ignore-errors
"""Token-parallel gradients of the pairs within a chunk, and the sums of everything: dq, dk, dg, dbeta.

The pairs are walked by key column j from the last to the first; `d[i]` is the exact sum g_{j+1} + ... + g_i for
rows i > j, so exp2(d) <= 1 whatever g is. A thread owns a channel (`load_channels`): the triangle costs 120 steps
a thread, and nothing is exchanged between threads. Diagonal pairs (i = j) are added to dq and dk apart from the
others: in dg they cancel exactly, and would leave only their rounding.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import LOG2E, load_channels, pick, store_channels


@triton.jit
def column_pair(qt, kt, gt, bt, pairs, d, dq_pair, r, col, J: tl.constexpr):
    """Key columns J + 1 and J: their part of sum_j dP_ij k_j e_ij, of R, and their rows of Col."""
    row = tl.arange(0, 16)
    rows = row[None, :]
    for j in tl.static_range(J + 1, J - 1, -1):
        if j < 15:
            dpj = tl.load(pairs + j * 32 + row)
            dlj = tl.load(pairs + j * 32 + 16 + row)
            decay = tl.exp2(d)
            key = decay * pick(kt, j)
            below = rows > j
            dq_pair = tl.where(below, dq_pair + dpj[None, :] * key, dq_pair)
            r = tl.where(below, r + dlj[None, :] * key, r)
            mixed = dpj[None, :] * qt + (dlj * bt)[None, :] * kt
            colj = tl.sum(tl.where(below, mixed * decay, 0.0), 1, keep_dims=True)
            col = tl.where(rows == j, colj, col)
        d = tl.where(rows >= j, d + pick(gt, j), d)
    return d, dq_pair, r, col


@triton.jit(do_not_specialize=["T", "H", "NC", "zero"])
def kdaprof_kda_bwd_pairs(
    q, k, g, beta, grec, dq, dk, dg, dbeta, T, H, NC, zero,
    K: tl.constexpr, KP: tl.constexpr, GRECORD: tl.constexpr, SPARE: tl.constexpr,
):  # fmt: skip
    """Backward, stage 3. Grid: B H NC."""
    n = tl.program_id(0).to(tl.int64)
    bh = n // NC
    t0 = (n - bh * NC) * 16
    b = bh // H
    first = (b * T + t0) * H + (bh - b * H)
    pairs = grec + n * GRECORD
    row = tl.arange(0, 16)
    rows = row[None, :]
    channel = tl.arange(0, KP)[:, None]
    left = T - t0
    live = row < left
    step = H * K
    qt = load_channels(q + first * K, step, left, zero, K, KP)
    kt = load_channels(k + first * K, step, left, zero, K, KP)
    gt = load_channels(g + first * K, step, left, zero, K, KP) * LOG2E
    bt = tl.load(beta + first + row * H, mask=live, other=0.0).to(tl.float32)
    # dP's diagonal, taken from whole tiles so that all the columns below come out of the L1 cache: one wait on memory
    # in the place of eight. The 0 keeps dL's tile in the sum; a product with it is not folded away in floats.
    tile = pairs + row[:, None] * 32 + row[None, :]
    diagonal = tl.where(row[:, None] == rows, tl.load(tile), tl.load(tile + 16) * 0.0)
    diagonal = tl.sum(diagonal, 0)[None, :]
    d = tl.zeros([KP, 16], tl.float32)
    dq_pair = tl.zeros([KP, 16], tl.float32)
    r = tl.zeros([KP, 16], tl.float32)
    col = tl.zeros([KP, 16], tl.float32)
    # Always true, which the compiler cannot know: each pair of columns is a block of code of its own. In one
    # block it would load all columns first and run out of registers.
    if NC > -8:
        d, dq_pair, r, col = column_pair(qt, kt, gt, bt, pairs, d, dq_pair, r, col, 14)
    if NC > -7:
        d, dq_pair, r, col = column_pair(qt, kt, gt, bt, pairs, d, dq_pair, r, col, 12)
    if NC > -6:
        d, dq_pair, r, col = column_pair(qt, kt, gt, bt, pairs, d, dq_pair, r, col, 10)
    if NC > -5:
        d, dq_pair, r, col = column_pair(qt, kt, gt, bt, pairs, d, dq_pair, r, col, 8)
    if NC > -4:
        d, dq_pair, r, col = column_pair(qt, kt, gt, bt, pairs, d, dq_pair, r, col, 6)
    if NC > -3:
        d, dq_pair, r, col = column_pair(qt, kt, gt, bt, pairs, d, dq_pair, r, col, 4)
    if NC > -2:
        d, dq_pair, r, col = column_pair(qt, kt, gt, bt, pairs, d, dq_pair, r, col, 2)
    if NC > -1:
        d, dq_pair, r, col = column_pair(qt, kt, gt, bt, pairs, d, dq_pair, r, col, 0)

    if SPARE:
        spare = pairs + 528 + K
        gq, gk, gy = spare, spare + 16 * K, spare + 32 * K
        gstep = K
        gleft = T * 0 + 16
    else:
        gq, gk, gy = dq + first * K, dk + first * K, dg + first * K
        gstep = step
        gleft = left
    # Each is read by every thread before any overwrites it (barriers), and as late as possible (registers).
    y = load_channels(gy, gstep, gleft, zero, K, KP) * tl.exp2(d) + r
    db = tl.load(pairs + 512 + K + row) + tl.sum(kt * y, 0)
    tl.store(dbeta + first + row * H, db.to(dbeta.dtype.element_ty), mask=live)
    erase = y * bt[None, :]
    through_q = load_channels(gq, gstep, gleft, zero, K, KP) * tl.exp2(d)
    tl.debug_barrier()
    store_channels(dq + first * K, through_q + dq_pair + diagonal * kt, step, left, zero, K, KP)
    # dg_t: pairs and reads at or after t, writes before t, and the state that came in.
    after = qt * (through_q + dq_pair) + kt * (erase - col)
    total = tl.zeros([KP, 1], tl.float32)
    to_end = tl.zeros([KP, 16], tl.float32)
    for j in tl.static_range(16):
        gj = pick(gt, j)
        total += gj
        to_end = tl.where(rows < j, to_end + gj, to_end)
    through_k = load_channels(gk, gstep, gleft, zero, K, KP) * tl.exp2(to_end)
    tl.debug_barrier()
    store_channels(dk + first * K, through_k + erase + col + diagonal * qt, step, left, zero, K, KP)
    write = kt * through_k
    came_in = tl.load(pairs + 512 + channel, mask=channel < K, other=0.0) * tl.exp2(total)
    dg_t = tl.zeros([KP, 16], tl.float32) + came_in
    for m in tl.static_range(16):
        dg_t = tl.where(rows <= m, dg_t + pick(after, m), dg_t)
        dg_t = tl.where(rows > m, dg_t + pick(write, m), dg_t)
    store_channels(dg + first * K, dg_t, step, left, zero, K, KP)
