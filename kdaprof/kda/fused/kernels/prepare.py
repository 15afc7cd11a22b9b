# mypy: ignore-errors
"""Token-parallel preparation: one program a chunk and head turns q, k, v, g, beta into the chunk's record.

Exponents: G is never subtracted from G. Walking the key column j from the last to the first, `d[i]` holds the
exact sum g_{j+1} + ... + g_i for rows i > j and 0 for the others, so exp2(d) <= 1 whatever g is (masked before
exp), no cancellation occurs after a strong decay, and row i depends on tokens <= i only.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import load_row, load_tile, store_record

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


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
    ck = tl.arange(0, KP)
    cv = tl.arange(0, VP)
    live = (t0 + row) < T
    step = H * K
    q += first * K
    k += first * K
    g += first * K

    qt = load_tile(q, row, ck, step, live, K, KP)
    kt = load_tile(k, row, ck, step, live, K, KP)
    bt = tl.load(beta + first + row * H, mask=live, other=0.0).to(tl.float32)
    kb = kt * bt[:, None]

    d = tl.zeros([16, KP], tl.float32)  # log2 decay from column j to row i
    tail = tl.zeros([KP], tl.float32)  # log2 decay from column j to the chunk's end
    to_end = tl.zeros([16, KP], tl.float32)
    p = tl.zeros([16, 16], tl.float32)
    eye = tl.where(row[:, None] == row[None, :], 1.0, 0.0)
    a = eye
    for jj in range(16):
        j = 15 - jj
        alive = (t0 + j) < T
        kj = load_row(k + j * step, ck, alive, K, KP)
        gj = load_row(g + j * step, ck, alive, K, KP) * LOG2E
        decayed = tl.exp2(d) * kj[None, :]
        pj = tl.sum(qt * decayed, 1)
        lj = tl.sum(kb * decayed, 1)
        p = tl.where((row[None, :] == j) & (row[:, None] >= j), pj[:, None], p)
        # Column j of (I + L)^-1 from the finished columns to its right: e_j - A l_j.
        lj = tl.where(row > j, lj, 0.0)
        a = tl.where(row[None, :] == j, eye - tl.sum(a * lj[None, :], 1)[:, None], a)
        to_end = tl.where(row[:, None] == j, tail[None, :], to_end)
        tail += gj
        d += tl.where(row[:, None] >= j, gj[None, :], 0.0)

    decay = tl.exp2(d)  # d is now G, inclusive
    store_record(rec + 16 * K, qt * decay * scale, row, ck, K, KP)
    store_record(rec + 32 * K, kt * tl.exp2(to_end), row, ck, K, KP)
    small = rec + 48 * K + 16 * V
    store_record(small, p * scale, row, row, 16, 16)
    if WITH_A:
        store_record(small + 256, a, row, row, 16, 16)
    tl.store(small + 512 + ck, tl.exp2(tail), mask=ck < K)
    w = tl.dot(a, kb * decay, input_precision=PRECISION)
    store_record(rec, w, row, ck, K, KP)
    vt = load_tile(v + first * V, row, cv, H * V, live, V, VP)
    u = tl.dot(a, vt * bt[:, None], input_precision=PRECISION)
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
