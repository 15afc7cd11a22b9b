# mypy: ignore-errors
"""The recurrences over chunks: one program a head and block of V, the state [K, BV] in registers.

Forward: V' = A (beta v) - W S; O = Qs S + P V'; S <- D S + Kd^T V'. Backward: the same forward again, which keeps
states (`common`), and, independent of it, the reverse one. Columns of V never mix, so no program waits for another;
both directions run in one launch, since each alone leaves most of the card idle.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import dot, load_record, load_record_t, state_at


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


@triton.jit
def new_values(r, v, s, t, T, cv, step, K: tl.constexpr, KP: tl.constexpr, PRECISION: tl.constexpr):
    """V' = A (beta v) - W S of the chunk whose record is `r` and whose rows of `v` (stride `step`) are `t`."""
    row = tl.arange(0, 16)
    at = t.to(tl.int64)[:, None] * step + cv[None, :]
    vt = tl.load(v + at, mask=(t < T)[:, None], other=0.0).to(tl.float32)
    a = load_record(r + 48 * K + 256, row, row, 16, 16)
    vt = vt * tl.load(r + 48 * K + 512 + K + row)[:, None]
    u = dot(a, vt, tl.zeros_like(vt), PRECISION)
    w = load_record(r, row, tl.arange(0, KP), K, KP)
    return dot(-w, s, u, PRECISION)


@triton.jit
def next_state(r, s, vn, K: tl.constexpr, KP: tl.constexpr, PRECISION: tl.constexpr):
    """D S + Kd^T V'."""
    kd = load_record_t(r + 32 * K, tl.arange(0, 16), tl.arange(0, KP), K, KP)
    return dot(kd, vn, s * load_decay(r + 48 * K + 512, K, KP)[:, None], PRECISION)


@triton.jit(do_not_specialize=["T", "H", "NC"])
def kdaprof_kda_fwd_recur(
    rec, v, h0, o, ht, T, H, NC,
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
    first = (b * T * H + (bh - b * H)) * V
    s = tl.zeros([KP, BV], tl.float32)
    if HAS_H0:
        s = load_state(h0, bh, pv, K, KP, V, BV)
    for c in tl.range(0, NC, num_stages=STAGES):
        r = rec + (bh * NC + c) * RECORD
        t = c * 16 + row
        vn = new_values(r, v + first, s, t, T, cv, H * V, K, KP, PRECISION)
        qs = load_record(r + 16 * K, row, ck, K, KP)
        out = dot(qs, s, tl.zeros([16, BV], tl.float32), PRECISION)
        p = load_record(r + 48 * K, row, row, 16, 16)
        out = dot(p, vn, out, PRECISION)
        s = next_state(r, s, vn, K, KP, PRECISION)
        at = t.to(tl.int64)[:, None] * (H * V) + cv[None, :]
        tl.store(o + first + at, out.to(o.dtype.element_ty), mask=(t < T)[:, None])
    if HAS_HT:
        store_state(ht + bh * (K * V), s, pv, K, KP, V, BV)


@triton.jit
def recur_states(
    rec, grec, v, h0, dq, dk, bh, pv, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr, PAIRS: tl.constexpr,
    GRECORD: tl.constexpr, HOME: tl.constexpr, HAS_H0: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Forward direction of the backward: S at each group's start (HOME), or S and V' of each chunk."""
    row = tl.arange(0, 16)
    ck = tl.arange(0, KP)
    cv = pv * BV + tl.arange(0, BV)
    b = bh // H
    head = b * T * H + (bh - b * H)
    s = tl.zeros([KP, BV], tl.float32)
    if HAS_H0:
        s = load_state(h0, bh, pv, K, KP, V, BV)
    for c in tl.range(0, NC, num_stages=STAGES):
        r = rec + (bh * NC + c) * RECORD
        kept = grec + (bh * NC + c) * GRECORD + PAIRS
        if HOME:
            here = (head + c * 16 * H) * K
            keep = (ck < K)[:, None] & (c % 2 == 0)
            tl.store(state_at(dq + here, dk + here, ck, cv, H * K, K), s, mask=keep)
        else:
            store_state(kept, s, pv, K, KP, V, BV)
        vn = new_values(r, v + head * V, s, c * 16 + row, T, cv, H * V, K, KP, PRECISION)
        if not HOME:
            tl.store(kept + 2 * K * V + row[:, None] * V + cv[None, :], vn)
        s = next_state(r, s, vn, K, KP, PRECISION)


@triton.jit
def recur_gradients(
    rec, grec, do, dht, dh0, dg, dv, bh, pv, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr, PAIRS: tl.constexpr,
    GRECORD: tl.constexpr, HOME: tl.constexpr, HAS_DHT: tl.constexpr, HAS_H0: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Reverse direction: dS at each group's end (HOME), or dS and X = A^T dV' of each chunk; dh0 at the end."""
    row = tl.arange(0, 16)
    ck = tl.arange(0, KP)
    cv = pv * BV + tl.arange(0, BV)
    b = bh // H
    head = b * T * H + (bh - b * H)
    ds = tl.zeros([KP, BV], tl.float32)
    if HAS_DHT:
        ds = load_state(dht, bh, pv, K, KP, V, BV)
    for back in tl.range(0, NC, num_stages=STAGES):
        c = NC - 1 - back
        r = rec + (bh * NC + c) * RECORD
        kept = grec + (bh * NC + c) * GRECORD + PAIRS
        if HOME:
            here = (head + (c - 1) * 16 * H) * K  # of the group: c is its second chunk where it is kept
            keep = (ck < K)[:, None] & (c % 2 == 1)
            tl.store(state_at(dg + here, dv + here, ck, cv, H * K, K), ds, mask=keep)
        else:
            store_state(kept + K * V, ds, pv, K, KP, V, BV)
        t = c * 16 + row
        at = t.to(tl.int64)[:, None] * (H * V) + cv[None, :]
        dot_ = tl.load(do + head * V + at, mask=(t < T)[:, None], other=0.0).to(tl.float32)
        kd = load_record(r + 32 * K, row, ck, K, KP)
        dvn = dot(kd, ds, tl.zeros([16, BV], tl.float32), PRECISION)
        pt = load_record_t(r + 48 * K, row, row, 16, 16)
        dvn = dot(pt, dot_, dvn, PRECISION)
        if not HOME:
            at_ = load_record_t(r + 48 * K + 256, row, row, 16, 16)
            x = dot(at_, dvn, tl.zeros([16, BV], tl.float32), PRECISION)
            tl.store(kept + 2 * K * V + 16 * V + row[:, None] * V + cv[None, :], x)
        ds = ds * load_decay(r + 48 * K + 512, K, KP)[:, None]
        qs = load_record_t(r + 16 * K, row, ck, K, KP)
        ds = dot(qs, dot_, ds, PRECISION)
        w = load_record_t(r, row, ck, K, KP)
        ds = dot(w, -dvn, ds, PRECISION)
    if HAS_H0:
        store_state(dh0 + bh * (K * V), ds, pv, K, KP, V, BV)


@triton.jit(do_not_specialize=["T", "H", "NC"])
def kdaprof_kda_bwd_recur(
    rec, grec, v, h0, do, dht, dh0, dq, dk, dg, dv, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr, PAIRS: tl.constexpr,
    GRECORD: tl.constexpr, HOME: tl.constexpr, HAS_H0: tl.constexpr, HAS_DHT: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Backward, stage 1: even programs go forward, odd ones backward. Grid: 2 B H (V / BV)."""
    pid = tl.program_id(0) // 2
    bh = (pid // (V // BV)).to(tl.int64)
    pv = pid % (V // BV)
    if tl.program_id(0) % 2 == 0:
        recur_states(
            rec, grec, v, h0, dq, dk, bh, pv, T, H, NC,
            K, KP, V, BV, RECORD, PAIRS, GRECORD, HOME, HAS_H0, PRECISION, STAGES,
        )  # fmt: skip
    else:
        recur_gradients(
            rec, grec, do, dht, dh0, dg, dv, bh, pv, T, H, NC,
            K, KP, V, BV, RECORD, PAIRS, GRECORD, HOME, HAS_DHT, HAS_H0, PRECISION, STAGES,
        )  # fmt: skip
