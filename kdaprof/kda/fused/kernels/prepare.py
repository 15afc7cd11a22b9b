# mypy: ignore-errors
"""Token-parallel preparation: one program a chunk and head turns q, k, v, g, beta into the chunk's record.

Pairs (i, j), j < i, are taken by levels s = 8, 4, 2, 1: those whose rows lie in one block of 2s, i in its upper
half and j in its lower. Anchored at the lower half's last row m, the decay factors as exp(G_i - G_m) times
exp(G_m - G_j), both <= 1 whatever g is, and the level is one masked product of 16 x 16 x K. The exponents are
sums of the g between, never a difference of cumulative sums, so nothing cancels after a strong decay; and m < i,
so row i depends on tokens <= i only.

(I + L)^-1 doubles along the same levels, A <- A - A L_s A, with A block-diagonal and L_s the level's block: block
forward substitution, stable where the product (I - L)(I + L^2)(I + L^4)(I + L^8) loses digits (equal keys).
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import LOG2E, dot, load_columns, load_tile, pick_row, store_record


@triton.jit
def level_decay(gt, S: tl.constexpr):
    """The exp of the decay between each row and the anchor of its block of 2 S, each <= 1; gt is g in base 2."""
    rows = tl.arange(0, 16)[:, None]
    x = tl.zeros_like(gt)
    for m in tl.static_range(16):
        gm = pick_row(gt, m)[None, :]
        if (m // S) % 2 == 1:
            x = tl.where(((rows // S) == (m // S)) & (rows >= m), x + gm, x)
        else:
            x = tl.where(((rows // S) == (m // S)) & (rows < m), x + gm, x)
    return tl.exp2(x)


@triton.jit
def level_pairs(left, right, row, S: tl.constexpr, PRECISION: tl.constexpr):
    """The pairs of level S of left @ right^T, `[16, 16]`, 0 elsewhere."""
    i = row[:, None]
    j = row[None, :]
    mine = ((i // (2 * S)) == (j // (2 * S))) & ((i // S) % 2 == 1) & ((j // S) % 2 == 0)
    zero = tl.zeros([16, 16], tl.float32)
    return tl.where(mine, dot(left, tl.trans(right), zero, PRECISION), 0.0)


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
    bt = tl.load(beta + first + row * H, mask=live, other=0.0).to(tl.float32)
    to_row = tl.exp2(to_row)
    store_record(rec + 16 * K, qt * to_row * scale, row, ck, K, KP)
    store_record(rec + 32 * K, kt * tl.exp2(to_end), row, ck, K, KP)
    small = rec + 48 * K + 16 * V
    tl.store(small + 512 + ck, tl.exp2(total), mask=ck < K)

    same = row[:, None] == row[None, :]
    p = tl.where(same, tl.sum(qt * kt, 1)[:, None], 0.0)
    e = level_decay(gt, 1)
    p += level_pairs(qt * e, kt * e, row, 1, PRECISION)
    a = tl.where(same, 1.0, 0.0) - level_pairs(kt * e, kt * e, row, 1, PRECISION) * bt[:, None]
    for level in tl.static_range(1, 4):
        e = level_decay(gt, 2**level)
        p += level_pairs(qt * e, kt * e, row, 2**level, PRECISION)
        off = level_pairs(kt * e, kt * e, row, 2**level, PRECISION) * bt[:, None]
        a = dot(-a, dot(off, a, tl.zeros([16, 16], tl.float32), PRECISION), a, PRECISION)
    store_record(small, p * scale, row, row, 16, 16)
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
