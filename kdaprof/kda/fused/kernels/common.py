# mypy: ignore-errors
"""What the kernels share: the record of a chunk and masked loads of tiles.

One **record** a chunk and head, float32, in chunk order within a head (`n = (b H + h) NC + c`; NC is even, a chunk
past the end is empty). The forward writes it and, when gradients are wanted, keeps it for the backward, which only
reads it. In elements (C = 16), padded to a multiple of 128 bytes::

    E  [C, K]   exp G; its last row is exp G_C        P  [C, C]  scale q_i k_j exp(G_i - G_j), j <= i
    Kd [C, K]   k exp(G_C - G)                        A  [C, C]  (I + L)^-1, L = beta_i k_i k_j exp(G_i - G_j), j < i
    V' [C, V]   A (beta v - Kb S)

Kb = beta k E and Qs = scale q E are made where they are used, from E: that costs a read of k or q, and no place.

The backward has two ways with the states S `[K, V]` at a chunk's start and dS `[K, V]` at its end:

- HOME (float32, K = V = 16, 32 or 64, T a multiple of 32): S at the start and dS at the end of each group of two
  chunks. They live where the group's gradients will be, S in its 32 rows of dq (rows k < 32) and dk, dS in those of dg
  and dv, each read by the one program that overwrites it. No other state is needed (`state`): least memory and least
  traffic.
- else, those of every chunk, in the gradient record.

One **gradient record** a chunk and head, made and used within the backward. HOME, X = A^T dV' `[C, V]` waits in it
until the pairs' part takes its place; else that part comes first (PAIRS elements), then S, dS and X::

    [C, 2, C]   column j of dP and of dL, side by side       s [K]  sum over V of S dS      b [C]  sum over V of X v
    only for half-precision inputs, else in dq, dk and dg: Gq, Gk, Gy [C, K], what dq, dk, dbeta get through S
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def load_tile(ptr, rows, cols, stride, live, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Rows of a `[*, WIDTH]` matrix as float32 `[rows, PADDED]`; dead rows and padding are 0."""
    mask = live[:, None]
    if WIDTH != PADDED:
        mask = mask & (tl.arange(0, PADDED) < WIDTH)[None, :]
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store_tile(ptr, value, rows, cols, stride, live, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """The counterpart of `load_tile`, rounded to the pointer's dtype."""
    mask = live[:, None]
    if WIDTH != PADDED:
        mask = mask & (tl.arange(0, PADDED) < WIDTH)[None, :]
    tl.store(ptr + rows[:, None] * stride + cols[None, :], value.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def load_channels(ptr, stride, left, zero, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """The first 16 rows of a `[*, WIDTH]` matrix, transposed: float32 `[PADDED, 16]`, 0 from row `left` on.

    `left` may be 0 or less, as in a chunk past the end: what is read and cleared then is the last row there is.

    `zero` is 0, as a run-time argument that is not specialised on: the compiler knows that channels are contiguous,
    but not that they are aligned, and so gives a thread one channel and all its rows. Sums over rows stay in the
    thread, comparisons of row numbers fold away at compile time, and a warp still reads 128 bytes in a row.
    """
    channel = tl.arange(0, PADDED)[:, None]
    row = tl.arange(0, 16)[None, :]
    last = tl.minimum(left, 16).to(tl.int32) - 1
    at = ptr + zero + tl.minimum(row, last) * stride + channel  # a row that exists; cleared below if it is not its own
    tile = tl.load(at) if WIDTH == PADDED else tl.load(at, mask=channel < WIDTH, other=0.0)
    return tl.where(row <= last, tile.to(tl.float32), 0.0)


@triton.jit
def store_channels(ptr, tile, stride, left, zero, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """The counterpart of `load_channels`, rounded to the pointer's dtype."""
    channel = tl.arange(0, PADDED)[:, None]
    row = tl.arange(0, 16)[None, :]
    mask = row < left
    if WIDTH != PADDED:
        mask = mask & (channel < WIDTH)
    tl.store(ptr + zero + row * stride + channel, tile.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def pick(tile, m: tl.constexpr):
    """Row m of a float32 `[*, 16]` tile, `[*, 1]`. Summed as integers: there, unlike in floats, x + 0 folds away."""
    bits = tl.where(tl.arange(0, 16)[None, :] == m, tile.to(tl.int32, bitcast=True), 0)
    return tl.sum(bits, 1, keep_dims=True).to(tl.float32, bitcast=True)


@triton.jit
def split(x):
    """Split x = high + low, high rounded to tf32's 10 bits: the first half of a three-pass product."""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    high = bits.to(tl.float32, bitcast=True)
    return high, x - high


@triton.jit
def cut(x):
    """`split` with high cut off towards zero, as tensor cores read a float32: an instruction less.

    For one operand of a product alone: low has the sign of x then, and of two such the product of the lows, which
    nobody adds, would make every result too small (2.7e-7 of it; beside a rounded operand 0.8e-7).
    """
    high = (x.to(tl.int32, bitcast=True) & -0x2000).to(tl.float32, bitcast=True)
    return high, x - high


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr):
    """Return acc + a @ b in float32 with `PRECISION`: "tf32x3", "ieee" or "tf32".

    The three passes are written out: Triton's own "tf32x3" spends about twice as many instructions on splitting
    (it rounds with special cases for infinity and NaN, which here only have to stay non-finite). `acc` is added
    last and outside: tensor cores cut their sums off towards zero, and a state that went through them once a
    chunk would shrink.
    """
    if PRECISION == "tf32x3":
        a_high, a_low = split(a)
        b_high, b_low = cut(b)
        fresh = tl.dot(a_low, b_high, input_precision="tf32")
        fresh = tl.dot(a_high, b_low, acc=fresh, input_precision="tf32")
        fresh = tl.dot(a_high, b_high, acc=fresh, input_precision="tf32")
        return acc + fresh
    return tl.dot(a, b, acc=acc, input_precision=PRECISION)


@triton.jit
def paired(x):
    """Columns 8 b + 2 t + j of a `[M, N]` tile, j in 0 and 1, at 8 b + 4 j + t.

    A tensor core's sums lie in its threads by columns 2 t and 2 t + 1, its tf32 operands by columns t and t + 4. So
    sums in this order are an operand already, without a move between threads, if the other operand has its rows in it.
    """
    M: tl.constexpr = x.shape[0]
    N: tl.constexpr = x.shape[1]
    return tl.reshape(tl.permute(tl.reshape(x, (M, N // 8, 4, 2)), (0, 1, 3, 2)), (M, N))


@triton.jit
def small_dot(a, b, zero, PRECISION: tl.constexpr):
    """Return a @ b for a small result: the three passes in sums of their own, since one sum's chain is long.

    `zero` `[M, N]` is 0 in a way that the compiler does not see: it would make one sum of them again.
    """
    if PRECISION == "tf32x3":
        a_high, a_low = cut(a)
        b_high, b_low = split(b)
        low = tl.dot(a_low, b_high, input_precision="tf32")
        low = tl.dot(a_high, b_low, acc=low, input_precision="tf32")
        return tl.dot(a_high, b_high, acc=zero, input_precision="tf32") + low
    return tl.dot(a, b, acc=zero, input_precision=PRECISION)


@triton.jit
def load_record(ptr, rows, cols, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """`[rows, PADDED]` of a record's `[*, WIDTH]` matrix; every row of a record exists, padding is 0."""
    if WIDTH == PADDED:
        return tl.load(ptr + rows[:, None] * WIDTH + cols[None, :])
    return tl.load(ptr + rows[:, None] * WIDTH + cols[None, :], mask=(cols < WIDTH)[None, :], other=0.0)


@triton.jit
def load_record_t(ptr, rows, cols, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """`load_record` transposed: `[PADDED, rows]`."""
    if WIDTH == PADDED:
        return tl.load(ptr + rows[None, :] * WIDTH + cols[:, None])
    return tl.load(ptr + rows[None, :] * WIDTH + cols[:, None], mask=(cols < WIDTH)[:, None], other=0.0)


@triton.jit
def store_record(ptr, value, rows, cols, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Write `[rows, PADDED]` into a record's `[*, WIDTH]` matrix."""
    if WIDTH == PADDED:
        tl.store(ptr + rows[:, None] * WIDTH + cols[None, :], value)
    else:
        mask = (tl.arange(0, PADDED) < WIDTH)[None, :]
        tl.store(ptr + rows[:, None] * WIDTH + cols[None, :], value, mask=mask)


@triton.jit
def state_at(upper, lower, ck, cv, step, K: tl.constexpr):
    """Pointers `[ck, cv]` to a group's S or dS in its 32 rows (stride `step`) of two gradients, `upper` and `lower`."""
    at = (ck % 32)[:, None] * step + cv[None, :]
    if K <= 32:
        return upper + at
    return tl.where((ck < 32)[:, None], upper + at, lower + at)


@triton.jit
def finish(
    out, gq, gk, gy, dp, dl, through_q, through_k, y, sds, db, scale, row, ck, live, step,
    K: tl.constexpr, KP: tl.constexpr, SPARE: tl.constexpr,
):  # fmt: skip
    """Write one chunk's sums over V: dP and dL by columns, which is how the next stage reads them."""
    column = out + row[:, None] + row[None, :] * 32
    tl.store(column, dp * scale)
    tl.store(column + 16, -dl)
    tl.store(out + 512 + ck, sds, mask=ck < K)
    tl.store(out + 512 + K + row, db)
    if SPARE:
        spare = out + 528 + K
        whole = row < 16
        store_tile(spare, through_q * scale, row, ck, K, whole, K, KP)
        store_tile(spare + 16 * K, through_k, row, ck, K, whole, K, KP)
        store_tile(spare + 32 * K, -y, row, ck, K, whole, K, KP)
    else:
        store_tile(gq, through_q * scale, row, ck, step, live, K, KP)
        store_tile(gk, through_k, row, ck, step, live, K, KP)
        store_tile(gy, -y, row, ck, step, live, K, KP)
