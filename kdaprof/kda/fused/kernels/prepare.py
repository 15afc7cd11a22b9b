# mypy: ignore-errors
"""Token-parallel preparation: one program a chunk and head turns q, k, v, g, beta into the chunk's record.

Pairs (i, j), j < i, are taken by levels s = 8, 4, 2, 1: those whose rows lie in one block of 2s, i in its upper
half and j in its lower. Anchored at the lower half's last row m, the decay factors as exp(G_i - G_m) times
exp(G_m - G_j), both <= 1 whatever g is, and the level is one masked product. The exponents are sums of the g
between, never a difference of cumulative sums, so nothing cancels after a strong decay; and m < i, so row i
depends on tokens <= i only. Each level has 8 upper rows: those of q (for P) and of k (for L) make the 16 rows of
one product. Levels meet in the record, P in its place and L in A's.

(I + L)^-1 doubles along the same levels, A <- A - A L_s A, with A block-diagonal and L_s the level's block: block
forward substitution, stable where the product (I - L)(I + L^2)(I + L^4)(I + L^8) loses digits (equal keys).
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import LOG2E, dot, load_columns, load_tile, pick_row, store_record


@triton.jit
def upper_row(r, S: tl.constexpr):
    """The r-th of the 8 rows in the upper halves of the blocks of 2 S."""
    return (r // S) * (2 * S) + S + r % S


@triton.jit
def level_pairs(
    q, k, beta, small, gt, scale, step, left, H, K: tl.constexpr, KP: tl.constexpr, S: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write level S of P and of L = beta_i k_i k_j exp(G_i - G_j) to `small`; gt is g in base 2, `[16, KP]`."""
    row = tl.arange(0, 16)
    rows = row[:, None]
    ck = tl.arange(0, KP)
    uppers = upper_row(rows % 8, S)
    x_upper = tl.zeros_like(gt)
    x_lower = tl.zeros_like(gt)
    for m in tl.static_range(16):
        gm = pick_row(gt, m)[None, :]
        if (m // S) % 2 == 1:
            x_upper = tl.where((uppers // S == m // S) & (uppers >= m), x_upper + gm, x_upper)
        else:
            x_lower = tl.where((rows // S == m // S) & (rows < m), x_lower + gm, x_lower)
    upper = upper_row(row % 8, S)
    is_q = row < 8
    mask = (upper < left)[:, None]
    if K != KP:
        mask = mask & (ck < K)[None, :]
    ptr = tl.where(is_q, q, k)[:, None] + (upper * step)[:, None] + ck[None, :]
    a = tl.load(ptr, mask=mask, other=0.0).to(tl.float32) * tl.exp2(x_upper)
    b = load_tile(k, row, ck, step, row < left, K, KP) * tl.exp2(x_lower)
    pairs = dot(a, tl.trans(b), tl.zeros([16, 16], tl.float32), PRECISION)
    factor = tl.where(is_q, scale, tl.load(beta + upper * H, mask=upper < left, other=0.0).to(tl.float32))
    i = upper[:, None]
    j = row[None, :]
    mine = (i // (2 * S) == j // (2 * S)) & ((j // S) % 2 == 0)
    tl.store(small + tl.where(is_q, 0, 256)[:, None] + i * 16 + j, pairs * factor[:, None], mask=mine)


@triton.jit
def inverse(a, lower, S: tl.constexpr, PRECISION: tl.constexpr):
    """From the inverse of the diagonal blocks of S to that of the blocks of 2 S; lower is L, strictly lower."""
    row = tl.arange(0, 16)
    i = row[:, None]
    j = row[None, :]
    mine = (i // (2 * S) == j // (2 * S)) & ((i // S) % 2 == 1) & ((j // S) % 2 == 0)
    off = tl.where(mine, lower, 0.0)
    if S == 1:
        return a - off
    return dot(-a, dot(off, a, tl.zeros([16, 16], tl.float32), PRECISION), a, PRECISION)


@triton.jit
def prepare_chunk(
    q, k, v, g, beta, rec, scale, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, VP: tl.constexpr,
    RECORD: tl.constexpr, WITH_A: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Fill one record; `rec` points at record 0, the program id is the record's number."""
    n = tl.program_id(0).to(tl.int64)
    bh = n // NC
    t0 = (n - bh * NC) * 16
    b = bh // H
    first = (b * T + t0) * H + (bh - b * H)  # index of (b, t0, h) in [B, T, H]
    rec += n * RECORD
    row = tl.arange(0, 16)
    rows = row[:, None]
    ck = tl.arange(0, KP)
    cv = tl.arange(0, VP)
    live = (t0 + row) < T
    step = H * K
    q += first * K
    k += first * K
    g += first * K
    beta += first

    left = T - t0
    to_row = tl.zeros([16, KP], tl.float32)  # G, base 2
    to_end = tl.zeros([16, KP], tl.float32)  # G_C - G
    total = tl.zeros([KP], tl.float32)
    gt = load_columns(g, step, ck, left, K, KP) * LOG2E
    for m in tl.static_range(16):
        line = pick_row(gt, m)
        total += line
        to_row = tl.where(rows >= m, to_row + line[None, :], to_row)
        to_end = tl.where(rows < m, to_end + line[None, :], to_end)
    qt = load_tile(q, row, ck, step, live, K, KP)
    kt = load_tile(k, row, ck, step, live, K, KP)
    bt = tl.load(beta + row * H, mask=live, other=0.0).to(tl.float32)
    to_row = tl.exp2(to_row)
    store_record(rec + 16 * K, qt * to_row * scale, row, ck, K, KP)
    store_record(rec + 32 * K, kt * tl.exp2(to_end), row, ck, K, KP)
    small = rec + 48 * K + 16 * V
    tl.store(small + 512 + ck, tl.exp2(total), mask=ck < K)

    diagonal = rows == row[None, :]
    own = tl.where(diagonal, tl.sum(qt * kt, 1)[:, None] * scale, 0.0)
    grid = rows * 16 + row[None, :]
    tl.store(small + grid, own, mask=rows <= row[None, :])
    level_pairs(q, k, beta, small, gt, scale, step, left, H, K, KP, 1, PRECISION)
    level_pairs(q, k, beta, small, gt, scale, step, left, H, K, KP, 2, PRECISION)
    level_pairs(q, k, beta, small, gt, scale, step, left, H, K, KP, 4, PRECISION)
    level_pairs(q, k, beta, small, gt, scale, step, left, H, K, KP, 8, PRECISION)
    tl.debug_barrier()
    lower = tl.load(small + 256 + grid, mask=rows > row[None, :], other=0.0)
    tl.debug_barrier()
    a = tl.where(diagonal, 1.0, 0.0)
    a = inverse(a, lower, 1, PRECISION)
    a = inverse(a, lower, 2, PRECISION)
    a = inverse(a, lower, 4, PRECISION)
    a = inverse(a, lower, 8, PRECISION)
    if WITH_A:
        store_record(small + 256, a, row, row, 16, 16)
    a = a * bt[None, :]
    w = dot(a, kt * to_row, tl.zeros([16, KP], tl.float32), PRECISION)
    store_record(rec, w, row, ck, K, KP)
    vt = load_tile(v + first * V, row, cv, H * V, live, V, VP)
    u = dot(a, vt, tl.zeros([16, VP], tl.float32), PRECISION)
    store_record(rec + 48 * K, u, row, cv, V, VP)


@triton.jit(do_not_specialize=["T", "H", "NC"])
def kdaprof_kda_fwd_prepare(
    q, k, v, g, beta, rec, scale, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, VP: tl.constexpr,
    RECORD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Forward, stage 1. Grid: B H NC."""
    prepare_chunk(q, k, v, g, beta, rec, scale, T, H, NC, K, KP, V, VP, RECORD, False, PRECISION)


@triton.jit(do_not_specialize=["T", "H", "NC"])
def kdaprof_kda_bwd_prepare(
    q, k, v, g, beta, rec, scale, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, VP: tl.constexpr,
    RECORD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Backward, stage 1: the same records again (recomputed, not saved), with A. Grid: B H NC."""
    prepare_chunk(q, k, v, g, beta, rec, scale, T, H, NC, K, KP, V, VP, RECORD, True, PRECISION)
