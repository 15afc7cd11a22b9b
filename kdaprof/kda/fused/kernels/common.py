# mypy: ignore-errors
"""What the kernels share: the record of a chunk, masked tile loads and the dot.

One **record** a chunk and head, float32, contiguous, in chunk order within a head (`n = (b H + h) NC + c`).
Forward part, in elements (C = 16)::

    W  [C, K]   A (beta k exp G)          Qs [C, K]  scale q exp G
    Kd [C, K]   k exp(G_C - G)            U  [C, V]  A (beta v)
    P  [C, C]   scale q_i k_j exp(G_i - G_j), j <= i
    A  [C, C]   (I + L)^-1                D  [K]     exp G_C

The backward appends `S [K, V]` (state at the chunk's start), `dS [K, V]` (gradient of the state at its end),
`Vn [C, V]` (V') and `X [C, V]` (A^T dV'), and reuses P and A for dP and dL once the recurrences are done.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_tile(ptr, rows, cols, stride, live, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Rows `rows` of a `[*, WIDTH]` matrix as float32 `[rows, PADDED]`; dead rows and padding are 0."""
    mask = live[:, None]
    if WIDTH != PADDED:
        mask = mask & (cols < WIDTH)[None, :]
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store_tile(ptr, value, rows, cols, stride, live, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """The counterpart of `load_tile`, rounded to the pointer's dtype."""
    mask = live[:, None]
    if WIDTH != PADDED:
        mask = mask & (cols < WIDTH)[None, :]
    tl.store(ptr + rows[:, None] * stride + cols[None, :], value.to(ptr.dtype.element_ty), mask=mask)


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
        tl.store(ptr + rows[:, None] * WIDTH + cols[None, :], value, mask=(cols < WIDTH)[None, :])


@triton.jit
def load_row(ptr, cols, live, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """One row of a `[*, WIDTH]` matrix as float32 `[PADDED]`; 0 when `live` is false."""
    mask = (cols < WIDTH) & live
    return tl.load(ptr + cols, mask=mask, other=0.0).to(tl.float32)
