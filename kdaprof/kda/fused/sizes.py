"""How many chunks and how much workspace a call takes. Needs no Triton; layouts are in `kernels/common.py`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kdaprof.kda.fused.support import CHUNK

GROUP = 2 * CHUNK

_FULL = (torch.float32,) * 4


def _lines(elements: int) -> int:
    """Float32 elements, up to the next 128 bytes."""
    return -(-elements // 32) * 32


def chunks_of(time: int) -> int:
    """Chunks of `time` tokens; even, since the backward keeps states for every second one."""
    return -(-time // GROUP) * (GROUP // CHUNK)


def in_place(dtypes: Sequence[torch.dtype | None], k_dim: int, v_dim: int) -> bool:
    """Whether one program takes a head's whole state, so that Qs can wait in o, and V' take W's place.

    `dtypes` are those of q, k, v, g at least. Layouts: `kernels/common.py`.
    """
    return k_dim == v_dim and v_dim in (16, 32, 64) and tuple(dtypes[:4]) == _FULL


def record_elements(k_dim: int, v_dim: int, in_place: bool) -> int:
    """Float32 elements of one chunk's record."""
    return _lines(3 * CHUNK * k_dim + 2 * CHUNK * CHUNK + (0 if in_place else CHUNK * (k_dim + v_dim)))


def pairs_elements(k_dim: int, spare: bool) -> int:
    """Float32 elements of the pairs' part of a gradient record; `spare` unless q, k and g are float32."""
    return _lines(2 * CHUNK * CHUNK + k_dim + CHUNK + (3 * CHUNK * k_dim if spare else 0))


def gradient_elements(k_dim: int, v_dim: int, spare: bool, home: bool) -> int:
    """Float32 elements of one chunk's gradient record."""
    pairs = pairs_elements(k_dim, spare)
    return max(pairs, CHUNK * v_dim) if home else pairs + 2 * k_dim * v_dim + CHUNK * v_dim
