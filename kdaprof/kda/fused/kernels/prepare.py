# mypy: ignore-errors
"""Token-parallel preparation: one program a chunk and head turns q, k, g, beta into the chunk's record.

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

from kdaprof.kda.fused.kernels.common import (
    LOG2E,
    load_channels,
    pick,
    small_dot,
    store_channels,
)


@triton.jit
def level_pairs(qt, kt, gt, beta, pairs, scale, left, H, S: tl.constexpr, PRECISION: tl.constexpr):
    """Write level S of P and of L = beta_i k_i k_j exp(G_i - G_j) to `pairs`.

    qt, kt and gt (base 2) are `[KP, 16]` with all rows in a thread (`load_channels`), so that gathering the 8 upper
    rows costs nothing.
    """
    row = tl.arange(0, 16)
    rows = row[None, :]
    # Row r of the product is upper row u(r % 8), of q for r < 8 and of k beyond.
    uppers = ((rows % 8) // S) * (2 * S) + S + rows % S
    x_upper = tl.zeros_like(gt)
    x_lower = tl.zeros_like(gt)
    a = tl.zeros_like(gt)
    for m in tl.static_range(16):
        gm = pick(gt, m)
        if (m // S) % 2 == 1:
            x_upper = tl.where((uppers // S == m // S) & (uppers >= m), x_upper + gm, x_upper)
            a = tl.where(uppers == m, tl.where(rows < 8, pick(qt, m), pick(kt, m)), a)
        else:
            x_lower = tl.where((rows // S == m // S) & (rows < m), x_lower + gm, x_lower)
    found = small_dot(tl.trans(a * tl.exp2(x_upper)), kt * tl.exp2(x_lower), PRECISION)
    upper = ((row % 8) // S) * (2 * S) + S + row % S
    is_q = row < 8
    factor = tl.where(is_q, scale, tl.load(beta + upper * H, mask=upper < left, other=0.0).to(tl.float32))
    i = upper[:, None]
    j = row[None, :]
    mine = (i // (2 * S) == j // (2 * S)) & ((j // S) % 2 == 0)
    tl.store(pairs + tl.where(is_q, 0, 256)[:, None] + i * 16 + j, found * factor[:, None], mask=mine)


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
    return a - small_dot(a, small_dot(off, a, PRECISION), PRECISION)


@triton.jit(do_not_specialize=["T", "H", "NC", "zero"])
def kdaprof_kda_fwd_prepare(
    q, k, g, beta, rec, scale, T, H, NC, zero,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, RECORD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Forward, stage 1: the record of each chunk, but for V'. Grid: B H NC."""
    n = tl.program_id(0).to(tl.int64)
    bh = n // NC
    t0 = (n - bh * NC) * 16
    b = bh // H
    first = (b * T + t0) * H + (bh - b * H)  # index of (b, t0, h) in [B, T, H]
    rec += n * RECORD
    pairs = rec + 32 * K + 16 * V
    left = T - t0
    row = tl.arange(0, 16)
    rows = row[None, :]
    step = H * K
    beta += first
    gt = load_channels(g + first * K, step, left, zero, K, KP) * LOG2E
    qt = load_channels(q + first * K, step, left, zero, K, KP)
    kt = load_channels(k + first * K, step, left, zero, K, KP)

    to_row = tl.zeros([KP, 16], tl.float32)  # G, base 2
    to_end = tl.zeros([KP, 16], tl.float32)  # G_C - G
    for m in tl.static_range(16):
        gm = pick(gt, m)
        to_row = tl.where(rows >= m, to_row + gm, to_row)
        to_end = tl.where(rows < m, to_end + gm, to_end)
    store_channels(rec, tl.exp2(to_row), K, 16, zero, K, KP)
    store_channels(rec + 16 * K, kt * tl.exp2(to_end), K, 16, zero, K, KP)

    i = row[:, None]
    own = tl.where(i == rows, tl.sum(qt * kt, 0)[:, None] * scale, 0.0)
    grid = i * 16 + rows
    tl.store(pairs + grid, own, mask=i <= rows)
    level_pairs(qt, kt, gt, beta, pairs, scale, left, H, 1, PRECISION)
    level_pairs(qt, kt, gt, beta, pairs, scale, left, H, 2, PRECISION)
    level_pairs(qt, kt, gt, beta, pairs, scale, left, H, 4, PRECISION)
    level_pairs(qt, kt, gt, beta, pairs, scale, left, H, 8, PRECISION)
    tl.debug_barrier()
    lower = tl.load(pairs + 256 + grid, mask=i > rows, other=0.0)
    tl.debug_barrier()
    a = tl.where(i == rows, 1.0, 0.0)
    a = inverse(a, lower, 1, PRECISION)
    a = inverse(a, lower, 2, PRECISION)
    a = inverse(a, lower, 4, PRECISION)
    # The last doubling changes one block, rows 8 to 15 of columns 0 to 7. Its product is taken 32 columns wide, the
    # upper half of them 0: Triton gives all chained products the warps of the last, and to one of 16 x 16 it gives
    # both warps the same 16 rows, each product made twice.
    tl.store(pairs + 256 + grid, a)
    tl.debug_barrier()
    wide = tl.arange(0, 32)[None, :]
    a_wide = tl.load(pairs + 256 + i * 16 + wide, mask=(wide < 8) & (i < 8), other=0.0)
    tl.debug_barrier()
    corner = small_dot(small_dot(a, tl.where((i >= 8) & (rows < 8), lower, 0.0), PRECISION), a_wide, PRECISION)
    tl.store(pairs + 256 + i * 16 + wide, -corner, mask=(i >= 8) & (wide < 8))
