# mypy: ignore-errors
"""The recurrences over chunks: one program a head and block of V, the state [K, BV] in registers.

Forward: V' = A (beta v - Kb S); O = Qs S + P V'; S <- D S + Kd^T V', with D = exp G_C. Backward: S again from V', which
the forward kept, and, independent of it, the reverse recurrence: dV' = P^T dO + Kd dS; X = A^T dV';
dS <- D dS + Qs^T dO - Kb^T X. Columns of V never mix, so no program waits for another; both directions run in one
launch, since each alone leaves most of the card idle.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kdaprof.kda.fused.kernels.common import dot, load_record, load_record_t, load_tile, paired, state_at


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
def load_decay(record, K: tl.constexpr, KP: tl.constexpr):
    """The decay exp G_C of a chunk as `[KP]`."""
    ck = tl.arange(0, KP)
    if K == KP:
        return tl.load(record + 15 * K + ck)
    return tl.load(record + 15 * K + ck, mask=ck < K, other=0.0)


@triton.jit
def load_rows_t(x, t, live, step, K: tl.constexpr, KP: tl.constexpr):
    """Rows `t` of a head's q or k (stride `step`), transposed: `[KP, 16]`."""
    ck = tl.arange(0, KP)
    mask = live[None, :]
    if K != KP:
        mask = mask & (ck < K)[:, None]
    return tl.load(x + t.to(tl.int64)[None, :] * step + ck[:, None], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def next_state(r, s, vn, K: tl.constexpr, KP: tl.constexpr, PRECISION: tl.constexpr):
    """D S + Kd^T V'."""
    kd = load_record_t(r + 16 * K, tl.arange(0, 16), tl.arange(0, KP), K, KP)
    return dot(kd, vn, s * load_decay(r, K, KP)[:, None], PRECISION)


@triton.jit
def operand(x, PRECISION: tl.constexpr):
    """`x` as both operands of a product take it: `paired`, but as it is in one pass of tf32.

    Nothing is split then, and to pair half precision costs more than its moves (K = V = 128: registers spill).
    """
    if PRECISION == "tf32":
        return x
    return paired(x)


@triton.jit
def operand_t(x, PRECISION: tl.constexpr):
    """`x` transposed, a second operand with its rows in the order of an `operand`'s columns."""
    return tl.trans(operand(x, PRECISION))


@triton.jit(do_not_specialize=["T", "H", "NC"])
def kdaprof_kda_fwd_recur(
    rec, q, k, v, beta, h0, o, ht, scale, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr,
    HAS_H0: tl.constexpr, HAS_HT: tl.constexpr, KEEP: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Forward, stage 2: o, the final state, and with KEEP V' into the records. Grid: B H (V / BV)."""
    pid = tl.program_id(0)
    bh = (pid // (V // BV)).to(tl.int64)
    pv = pid % (V // BV)
    row = tl.arange(0, 16)
    ck = tl.arange(0, KP)
    cv = pv * BV + tl.arange(0, BV)
    b = bh // H
    head = b * T * H + (bh - b * H)
    q += head * K
    k += head * K
    v += head * V
    o += head * V
    beta += head
    # Transposed, [BV, .]: the state and V' are first operands then, and go from product to product as they are.
    s = tl.zeros([BV, KP], tl.float32)
    if HAS_H0:
        s = tl.trans(load_state(h0, bh, pv, K, KP, V, BV))
    for c in tl.range(0, NC, num_stages=STAGES):
        r = rec + (bh * NC + c) * RECORD
        pairs = r + 32 * K + 16 * V
        t = (c * 16 + row).to(tl.int64)
        live = t < T
        bt = tl.load(beta + t * H, mask=live, other=0.0).to(tl.float32)[None, :]
        grown = load_record(r, row, ck, K, KP)
        none = tl.zeros([BV, 16], tl.float32)
        before = operand(s, PRECISION)
        # beta and scale wait for the products: there each warp has its own rows, while of k and q each has all.
        through_k = dot(before, operand_t(load_tile(k, t, ck, H * K, live, K, KP) * grown, PRECISION), none, PRECISION)
        u = bt * (tl.trans(load_tile(v, t, cv, H * V, live, BV, BV)) - through_k)
        through_q = dot(before, operand_t(load_tile(q, t, ck, H * K, live, K, KP) * grown, PRECISION), none, PRECISION)
        a_t = operand_t(load_record(pairs + 256, row, row, 16, 16), PRECISION)
        vn = dot(operand(u, PRECISION), a_t, none, PRECISION)
        if KEEP:
            tl.store(r + 32 * K + row[None, :] * V + cv[:, None], vn)
        vn = operand(vn, PRECISION)
        kd = operand_t(load_record_t(r + 16 * K, row, ck, K, KP), PRECISION)
        s = dot(vn, kd, s * load_decay(r, K, KP)[None, :], PRECISION)
        out = dot(vn, operand_t(load_record(pairs, row, row, 16, 16), PRECISION), scale * through_q, PRECISION)
        tl.store(o + t[None, :] * (H * V) + cv[:, None], out.to(o.dtype.element_ty), mask=live[None, :])
    if HAS_HT:
        store_state(ht + bh * (K * V), tl.trans(s), pv, K, KP, V, BV)


@triton.jit
def recur_states(
    rec, grec, h0, dq, dk, bh, pv, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr,
    PAIRS: tl.constexpr, GRECORD: tl.constexpr, HOME: tl.constexpr, HAS_H0: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Forward direction of the backward: S at the start of each group (HOME) or chunk."""
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
        if HOME:
            here = (head + c * 16 * H) * K
            keep = (ck < K)[:, None] & (c % 2 == 0)
            tl.store(state_at(dq + here, dk + here, ck, cv, H * K, K), s, mask=keep)
        else:
            store_state(grec + (bh * NC + c) * GRECORD + PAIRS, s, pv, K, KP, V, BV)
        vn = tl.load(r + 32 * K + row[:, None] * V + cv[None, :])
        s = next_state(r, s, vn, K, KP, PRECISION)


@triton.jit
def recur_gradients(
    rec, grec, q, k, beta, do, dht, dh0, dg, dv, scale, bh, pv, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr, PAIRS: tl.constexpr,
    GRECORD: tl.constexpr, HOME: tl.constexpr, HAS_DHT: tl.constexpr, HAS_H0: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Reverse direction: X of each chunk, dS at the end of each group (HOME) or chunk; dh0 at the end."""
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
        pairs = r + 32 * K + 16 * V
        kept = grec + (bh * NC + c) * GRECORD
        if HOME:
            here = (head + (c - 1) * 16 * H) * K  # of the group: c is its second chunk where it is kept
            keep = (ck < K)[:, None] & (c % 2 == 1)
            tl.store(state_at(dg + here, dv + here, ck, cv, H * K, K), ds, mask=keep)
        else:
            store_state(kept + PAIRS + K * V, ds, pv, K, KP, V, BV)
            kept += PAIRS + 2 * K * V
        t = c * 16 + row
        live = t < T
        dot_ = load_tile(do + head * V, t.to(tl.int64), cv, H * V, live, BV, BV)
        pt = load_record_t(pairs, row, row, 16, 16)
        kd = load_record(r + 16 * K, row, ck, K, KP)
        dvn = dot(kd, ds, dot(pt, dot_, tl.zeros([16, BV], tl.float32), PRECISION), PRECISION)
        x = dot(load_record_t(pairs + 256, row, row, 16, 16), dvn, tl.zeros([16, BV], tl.float32), PRECISION)
        tl.store(kept + row[:, None] * V + cv[None, :], x)
        bt = tl.load(beta + head + t.to(tl.int64) * H, mask=live, other=0.0).to(tl.float32)[:, None]
        grown = load_record_t(r, row, ck, K, KP)
        from_q = load_rows_t(q + head * K, t, live, H * K, K, KP) * grown
        from_k = load_rows_t(k + head * K, t, live, H * K, K, KP) * grown
        from_q = scale * dot(from_q, dot_, tl.zeros([KP, BV], tl.float32), PRECISION)
        ds = dot(from_k, -bt * x, ds * load_decay(r, K, KP)[:, None] + from_q, PRECISION)
    if HAS_H0:
        store_state(dh0 + bh * (K * V), ds, pv, K, KP, V, BV)


@triton.jit(do_not_specialize=["T", "H", "NC"])
def kdaprof_kda_bwd_recur(
    rec, grec, q, k, beta, h0, do, dht, dh0, dq, dk, dg, dv, scale, T, H, NC,
    K: tl.constexpr, KP: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, RECORD: tl.constexpr,
    PAIRS: tl.constexpr, GRECORD: tl.constexpr, HOME: tl.constexpr, HAS_H0: tl.constexpr, HAS_DHT: tl.constexpr,
    PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Backward, stage 1: even programs go forward, odd ones backward. Grid: 2 B H (V / BV)."""
    pid = tl.program_id(0) // 2
    bh = (pid // (V // BV)).to(tl.int64)
    pv = pid % (V // BV)
    if tl.program_id(0) % 2 == 0:
        recur_states(
            rec, grec, h0, dq, dk, bh, pv, T, H, NC,
            K, KP, V, BV, RECORD, PAIRS, GRECORD, HOME, HAS_H0, PRECISION, STAGES,
        )  # fmt: skip
    else:
        recur_gradients(
            rec, grec, q, k, beta, do, dht, dh0, dg, dv, scale, bh, pv, T, H, NC,
            K, KP, V, BV, RECORD, PAIRS, GRECORD, HOME, HAS_DHT, HAS_H0, PRECISION, STAGES,
        )  # fmt: skip
