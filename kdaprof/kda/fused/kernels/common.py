# mypy: ignore-errors
"""What the kernels share: the record of a chunk and masked loads of tiles.

One **record** a chunk and head, float32, contiguous, in chunk order within a head (`n = (b H + h) NC + c`).
Forward part, in elements (C = 16)::

    W  [C, K]   A (beta k exp G)          Qs [C, K]  scale q exp G
    Kd [C, K]   k exp(G_C - G)            U  [C, V]  A (beta v)
    P  [C, C]   scale q_i k_j exp(G_i - G_j), j <= i
    A  [C, C]   (I + L)^-1                D  [K]     exp G_C

The backward appends `S [K, V]` (state at the chunk's start), `dS [K, V]` (gradient of the state at its end),
`Vn [C, V]` (V') and `X [C, V]` (A^T dV'), and reuses P and A for the transposes of dP and dL once the
recurrences are done.
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
def load_row(ptr, cols, live, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """One row of a `[*, WIDTH]` matrix as float32 `[PADDED]`; 0 when `live` is false."""
    if WIDTH != PADDED:
        live = (tl.arange(0, PADDED) < WIDTH) & live
    return tl.load(ptr + cols, mask=live, other=0.0).to(tl.float32)


@triton.jit
def load_columns(ptr, stride, cols, left, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """The first 16 rows of a `[*, WIDTH]` matrix as float32, 0 from row `left` on, loaded row by row.

    A tile put together from rows is laid out with all its rows in one thread: scans over rows stay in the
    thread, and comparisons of row numbers fold away at compile time. A warp still reads 128 bytes in a row.
    """
    rows = tl.arange(0, 16)[:, None]
    tile = tl.zeros([16, PADDED], tl.float32)
    if left >= 16:
        for m in tl.static_range(16):
            tile = tl.where(rows == m, load_row(ptr + m * stride, cols, True, WIDTH, PADDED)[None, :], tile)
    else:
        for m in tl.static_range(16):
            tile = tl.where(rows == m, load_row(ptr + m * stride, cols, m < left, WIDTH, PADDED)[None, :], tile)
    return tile


@triton.jit
def pick_row(tile, m: tl.constexpr):
    """Row m of a float32 `[16, *]` tile. Added as integers, since x + 0 folds away there and not in floats."""
    bits = tile.to(tl.int32, bitcast=True)
    bits = tl.where((tl.arange(0, 16) == m)[:, None], bits, 0)
    return tl.sum(bits, 0).to(tl.float32, bitcast=True)


@triton.jit
def split(x):
    """Split x = high + low, high rounded to tf32's 10 bits: the first half of a three-pass product."""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    high = bits.to(tl.float32, bitcast=True)
    return high, x - high


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr):
    """Return acc + a @ b in float32 with `PRECISION`: "tf32x3", "ieee" or "tf32".

    The three passes are written out: Triton's own "tf32x3" spends about twice as many instructions on splitting
    (it rounds with special cases for infinity and NaN, which here only have to stay non-finite).
    """
    if PRECISION == "tf32x3":
        a_high, a_low = split(a)
        b_high, b_low = split(b)
        acc = tl.dot(a_low, b_high, acc=acc, input_precision="tf32")
        acc = tl.dot(a_high, b_low, acc=acc, input_precision="tf32")
        return tl.dot(a_high, b_high, acc=acc, input_precision="tf32")
    return tl.dot(a, b, acc=acc, input_precision=PRECISION)


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
