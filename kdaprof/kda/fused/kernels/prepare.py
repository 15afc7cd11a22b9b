# mypy: ignore-errors
"""Token-parallel preparation: one program a chunk and head turns q, k, g, beta into the chunk's record.

Pairs (i, j), j < i, are taken by levels s = 8, 4, 2, 1: those whose rows lie in one block of 2s, i in its upper
half and j in its lower. Anchored at the lower half's last row m, the decay factors as exp(G_i - G_m) times
exp(G_m - G_j), both <= 1 whatever g is, and the level is one masked product. The exponents are sums of the g
between, never a difference of cumulative sums, so nothing cancels after a strong decay; and m < i, so row i
depends on tokens <= i only. Each level has 8 upper rows: those of q (for P) and of k (for L) make the 16 rows of
one product. Levels meet in the record, P in its place and L in A's.

(I + L)^-1 doubles along the same levels, A <- A - A L_s A, with A block-diagonal and L_s the level's blocks, which are
those of A L A: block forward substitution, stable where the product
(I - L)(I + L^2)(I + L^4)(I + L^8) loses digits (equal keys).
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import (
    LOG2E,
    load_channels,
    paired,
    pick,
    small_dot,
    store_channels,
)


@triton.jit
def upper_row(row, S: tl.constexpr):
    """The upper row of the chunk that is row `row` of level S's product: of q for the first 8, of k beyond."""
    return ((row % 8) // S) * (2 * S) + S + row % S


@triton.jit
def level_factor(beta, scale, left, H, S: tl.constexpr):
    """What the 16 rows of a level's product are multiplied with: scale for those of q, beta for those of k."""
    row = tl.arange(0, 16)
    upper = upper_row(row, S)
    return tl.where(row < 8, scale, tl.load(beta + upper * H, mask=upper < left, other=0.0).to(tl.float32))


@triton.jit
def level_pairs(qt, kt, gt, factor, pairs, zero, S: tl.constexpr, PRECISION: tl.constexpr):
    """Write level S of P and of L = beta_i k_i k_j exp(G_i - G_j) to `pairs`.

    qt, kt and gt (base 2) are `[KP, 16]` with all rows in a thread (`load_channels`), so that gathering the 8 upper
    rows costs nothing.
    """
    KP: tl.constexpr = gt.shape[0]
    row = tl.arange(0, 16)
    rows = row[None, :]
    col = tl.arange(0, 8)
    uppers = upper_row(rows, S)
    x_upper = tl.full(gt.shape, -0.0, tl.float32)
    x_lower = tl.full(gt.shape, -0.0, tl.float32)
    a = tl.zeros_like(gt)
    for m in tl.static_range(16):
        if (m // S) % 2 == 1:
            x_upper = tl.where((uppers // S == m // S) & (uppers >= m), x_upper + pick(gt, m), x_upper)
            a = tl.where(uppers == m, tl.where(rows < 8, pick(qt, m), pick(kt, m)), a)
        if ((15 - m) // S) % 2 == 0:
            x_lower = tl.where((rows // S == (15 - m) // S) & (rows < 15 - m), x_lower + pick(gt, 15 - m), x_lower)
    lowers = tl.where(rows % (2 * S) == S - 1, kt, kt * tl.exp2(x_lower))
    # The rows of the lower halves alone: `[KP, 8]`.
    lowers, _ = tl.split(tl.permute(tl.reshape(lowers, (KP, 8 // S, 2, S)), (0, 1, 3, 2)))
    found = small_dot(tl.trans(a * tl.exp2(x_upper)), tl.reshape(lowers, (KP, 8)), zero, PRECISION)
    is_q = row < 8
    i = upper_row(row, S)[:, None]
    j = (col // S * (2 * S) + col % S)[None, :]
    mine = i // (2 * S) == j // (2 * S)
    tl.store(pairs + tl.where(is_q, 0, 256)[:, None] + i * 16 + j, found * factor[:, None], mask=mine)


@triton.jit
def lower_left(S: tl.constexpr, TURNED: tl.constexpr):
    """`[16, 16]`: the lower left quarter, S x S, of each diagonal block of 2 S; TURNED, the upper right one."""
    row = tl.arange(0, 16)
    i = row[None, :] if TURNED else row[:, None]
    j = row[:, None] if TURNED else row[None, :]
    return (i // (2 * S) == j // (2 * S)) & ((i // S) % 2 == 1) & ((j // S) % 2 == 0)


@triton.jit
def inverse(a, at, lower, lower_t, zero, S: tl.constexpr, PRECISION: tl.constexpr):
    """From the inverse of the diagonal blocks of S, and its transpose, to those of the blocks of 2 S.

    A - A L_s A, where A L A's quarter of block S is that of A L_s A. With the transpose at hand no value has to change
    threads: it is the second operand of the one product, as the inverse is of the other's.
    """
    left = small_dot(paired(a), lower, zero, PRECISION)
    left_t = small_dot(paired(at), lower_t, zero, PRECISION)
    step = small_dot(paired(left), tl.trans(paired(at)), zero, PRECISION)
    step_t = small_dot(paired(left_t), tl.trans(paired(a)), zero, PRECISION)
    return a - tl.where(lower_left(S, False), step, 0.0), at - tl.where(lower_left(S, True), step_t, 0.0)


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
    # Asked for first: nothing waits for them later.
    by1 = level_factor(beta, scale, left, H, 1)
    by2 = level_factor(beta, scale, left, H, 2)
    by4 = level_factor(beta, scale, left, H, 4)
    by8 = level_factor(beta, scale, left, H, 8)
    gt = load_channels(g + first * K, step, left, zero, K, KP) * LOG2E
    qt = load_channels(q + first * K, step, left, zero, K, KP)
    kt = load_channels(k + first * K, step, left, zero, K, KP)

    # Sums along the rows, each from the other's: from -0, since x + 0 is not x when x is -0, and would be computed.
    to_row = tl.full([KP, 16], -0.0, tl.float32)  # G, base 2
    to_end = tl.full([KP, 16], -0.0, tl.float32)  # G_C - G
    for m in tl.static_range(16):
        to_row = tl.where(rows >= m, to_row + pick(gt, m), to_row)
        to_end = tl.where(rows < 15 - m, to_end + pick(gt, 15 - m), to_end)
    store_channels(rec, tl.exp2(to_row), K, 16, zero, K, KP)
    store_channels(rec + 16 * K, tl.where(rows == 15, kt, kt * tl.exp2(to_end)), K, 16, zero, K, KP)

    i = row[:, None]
    own = tl.where(i == rows, tl.sum(qt * kt, 0)[:, None] * scale, 0.0)
    grid = i * 16 + rows
    none = tl.zeros([16, 16], tl.float32) + zero.to(tl.float32)
    half = tl.zeros([16, 8], tl.float32) + zero.to(tl.float32)
    tl.store(pairs + grid, own, mask=i <= rows)
    level_pairs(qt, kt, gt, by1, pairs, half, 1, PRECISION)
    level_pairs(qt, kt, gt, by2, pairs, half, 2, PRECISION)
    level_pairs(qt, kt, gt, by4, pairs, half, 4, PRECISION)
    level_pairs(qt, kt, gt, by8, pairs, half, 8, PRECISION)
    tl.debug_barrier()
    lower = tl.load(pairs + 256 + grid, mask=i > rows, other=0.0)
    lower_t = tl.load(pairs + 256 + rows * 16 + i, mask=i < rows, other=0.0)
    tl.debug_barrier()
    a = tl.where(i == rows, 1.0, tl.where(lower_left(1, False), -lower, 0.0))
    at = tl.where(i == rows, 1.0, tl.where(lower_left(1, True), -lower_t, 0.0))
    # Rows of a second operand in the order of a paired first one's columns.
    lower_rows = tl.trans(paired(lower_t))
    lower_rows_t = tl.trans(paired(lower))
    a, at = inverse(a, at, lower_rows, lower_rows_t, none, 2, PRECISION)
    a, at = inverse(a, at, lower_rows, lower_rows_t, none, 4, PRECISION)
    a, _ = inverse(a, at, lower_rows, lower_rows_t, none, 8, PRECISION)
    tl.store(pairs + 256 + grid, a)
