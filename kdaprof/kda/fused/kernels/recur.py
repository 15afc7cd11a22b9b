# mypy: ignore-errors
"""The recurrences over chunks: one program a head and block of V, the state [K, BV] in registers.

Forward: V' = U - W S; O = Qs S + P V'; S <- D S + Kd^T V'. Backward: the same forward again, which keeps S and
V' of each chunk, and, independent of it, the reverse one for dS and dV'. Columns of V never mix, so no program
waits for another; both directions run in one launch, since each alone leaves most of the card idle.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import dot, load_record, load_record_t


@triton.jit
def load_state(ptr, bh, pv, K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr):
    """Block `pv` of columns of state `bh` as float32 `[KP, BV]`."""
    ck = tl.arange(0, KP)
    cv = pv * BV + tl.arange(0, BV)
    return tl.load(ptr + bh * (K * V) + ck[:, None] * V + cv[None, :], mask=(ck < K)[:, None], other=0.0).to(tl.float32)


@triton.jit
def store_state(ptr, value, pv, K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr):
    """Write `[KP, BV]` as block `pv` of the state at `ptr`."""
    ck = tl.arange(0, KP)
    cv = pv * BV + tl.arange(0, BV)
    value = value.to(ptr.dtype.element_ty)
    if K == KP:
        tl.store(ptr + ck[:, None] * V + cv[None, :], value)
    else:
        tl.store(ptr + ck[:, None] * V + cv[None, :], value, mask=(ck < K)[:, None])


@triton.jit
def load_decay(ptr, K: tl.constexpr, KP: tl.constexpr):
    """The decay exp G_C as `[KP]`."""
    ck = tl.arange(0, KP)
    if K == KP:
        return tl.load(ptr + ck)
    return tl.load(ptr + ck, mask=ck < K, other=0.0)


@triton.jit(do_not_specialize=["T", "H", "NC"])
def kdaprof_kda_fwd_recur(
    rec, h0, o, ht, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr,
    HAS_H0: tl.constexpr, HAS_HT: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Forward, stage 2. Grid: B H (V / BV)."""
    pid = tl.program_id(0)
    bh = (pid // (V // BV)).to(tl.int64)
    pv = pid % (V // BV)
    row = tl.arange(0, 16)
    ck = tl.arange(0, KP)
    cv = pv * BV + tl.arange(0, BV)
    b = bh // H
    o += (b * T * H + (bh - b * H)) * V
    s = tl.zeros([KP, BV], tl.float32)
    if HAS_H0:
        s = load_state(h0, bh, pv, K, KP, V, BV)
    for c in tl.range(0, NC, num_stages=STAGES):
        r = rec + (bh * NC + c) * RECORD
        w = load_record(r, row, ck, K, KP)
        u = tl.load(r + 48 * K + row[:, None] * V + cv[None, :])
        vn = dot(-w, s, u, PRECISION)
        qs = load_record(r + 16 * K, row, ck, K, KP)
        out = dot(qs, s, tl.zeros([16, BV], tl.float32), PRECISION)
        p = load_record(r + 48 * K + 16 * V, row, row, 16, 16)
        out = dot(p, vn, out, PRECISION)
        kd = load_record_t(r + 32 * K, row, ck, K, KP)
        s = s * load_decay(r + 48 * K + 16 * V + 512, K, KP)[:, None]
        s = dot(kd, vn, s, PRECISION)
        t = c * 16 + row
        at = t.to(tl.int64)[:, None] * (H * V) + cv[None, :]
        tl.store(o + at, out.to(o.dtype.element_ty), mask=(t < T)[:, None])
    if HAS_HT:
        store_state(ht + bh * (K * V), s, pv, K, KP, V, BV)


@triton.jit
def recur_states(
    rec, grec, h0, bh, pv, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr,
    GRECORD: tl.constexpr, HAS_H0: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Forward direction of the backward: write S (at each chunk's start) and V' into the gradient records."""
    row = tl.arange(0, 16)
    ck = tl.arange(0, KP)
    cv = pv * BV + tl.arange(0, BV)
    s = tl.zeros([KP, BV], tl.float32)
    if HAS_H0:
        s = load_state(h0, bh, pv, K, KP, V, BV)
    for c in tl.range(0, NC, num_stages=STAGES):
        r = rec + (bh * NC + c) * RECORD
        big = grec + (bh * NC + c) * GRECORD
        store_state(big, s, pv, K, KP, V, BV)
        w = load_record(r, row, ck, K, KP)
        u = tl.load(r + 48 * K + row[:, None] * V + cv[None, :])
        vn = dot(-w, s, u, PRECISION)
        tl.store(big + 2 * K * V + row[:, None] * V + cv[None, :], vn)
        kd = load_record_t(r + 32 * K, row, ck, K, KP)
        s = s * load_decay(r + 48 * K + 16 * V + 512, K, KP)[:, None]
        s = dot(kd, vn, s, PRECISION)


@triton.jit
def recur_gradients(
    rec, grec, do, dht, dh0, bh, pv, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr,
    GRECORD: tl.constexpr, HAS_DHT: tl.constexpr, HAS_H0: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Reverse direction: write dS (of each chunk's end) and X = A^T dV' into the gradient records; dh0 at the end."""
    row = tl.arange(0, 16)
    ck = tl.arange(0, KP)
    cv = pv * BV + tl.arange(0, BV)
    b = bh // H
    do += (b * T * H + (bh - b * H)) * V
    ds = tl.zeros([KP, BV], tl.float32)
    if HAS_DHT:
        ds = load_state(dht, bh, pv, K, KP, V, BV)
    for back in tl.range(0, NC, num_stages=STAGES):
        c = NC - 1 - back
        r = rec + (bh * NC + c) * RECORD
        big = grec + (bh * NC + c) * GRECORD
        store_state(big + K * V, ds, pv, K, KP, V, BV)
        t = c * 16 + row
        at = t.to(tl.int64)[:, None] * (H * V) + cv[None, :]
        dot_ = tl.load(do + at, mask=(t < T)[:, None], other=0.0).to(tl.float32)
        kd = load_record(r + 32 * K, row, ck, K, KP)
        dv = dot(kd, ds, tl.zeros([16, BV], tl.float32), PRECISION)
        pt = load_record_t(r + 48 * K + 16 * V, row, row, 16, 16)
        dv = dot(pt, dot_, dv, PRECISION)
        at_ = load_record_t(r + 48 * K + 16 * V + 256, row, row, 16, 16)
        x = dot(at_, dv, tl.zeros([16, BV], tl.float32), PRECISION)
        tl.store(big + 2 * K * V + 16 * V + row[:, None] * V + cv[None, :], x)
        ds = ds * load_decay(r + 48 * K + 16 * V + 512, K, KP)[:, None]
        qs = load_record_t(r + 16 * K, row, ck, K, KP)
        ds = dot(qs, dot_, ds, PRECISION)
        w = load_record_t(r, row, ck, K, KP)
        ds = dot(w, -dv, ds, PRECISION)
    if HAS_H0:
        store_state(dh0 + bh * (K * V), ds, pv, K, KP, V, BV)


@triton.jit(do_not_specialize=["T", "H", "NC"])
def kdaprof_kda_bwd_recur(
    rec, grec, h0, do, dht, dh0, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr,
    GRECORD: tl.constexpr, HAS_H0: tl.constexpr, HAS_DHT: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Backward, stage 2: even programs go forward, odd ones backward. Grid: 2 B H (V / BV)."""
    pid = tl.program_id(0) // 2
    bh = (pid // (V // BV)).to(tl.int64)
    pv = pid % (V // BV)
    if tl.program_id(0) % 2 == 0:
        recur_states(rec, grec, h0, bh, pv, NC, K, KP, V, BV, RECORD, GRECORD, HAS_H0, PRECISION, STAGES)
    else:
        recur_gradients(
            rec, grec, do, dht, dh0, bh, pv, T, H, NC, K, KP, V, BV, RECORD, GRECORD, HAS_DHT, HAS_H0, PRECISION, STAGES
        )
