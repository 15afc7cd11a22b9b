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


def at_home(dtypes: Sequence[torch.dtype | None], k_dim: int, v_dim: int, time: int) -> bool:
    """Whether a group's states are kept where its gradients will be, and fit there (`kernels/common.py`).

    `dtypes` are those of q, k, v, g at least.
    """
    return k_dim == v_dim and v_dim in (16, 32, 64) and tuple(dtypes[:4]) == _FULL and time % GROUP == 0


def record_elements(k_dim: int, v_dim: int) -> int:
    """Float32 elements of one chunk's record."""
    return _lines(CHUNK * (2 * k_dim + v_dim + 2 * CHUNK))


def pairs_elements(k_dim: int, spare: bool) -> int:
    """Float32 elements of the pairs' part of a gradient record; `spare` unless q, k and g are float32."""
    return _lines(2 * CHUNK * CHUNK + k_dim + CHUNK + (3 * CHUNK * k_dim if spare else 0))


def gradient_elements(k_dim: int, v_dim: int, spare: bool, home: bool) -> int:
    """Float32 elements of one chunk's gradient record."""
    pairs = pairs_elements(k_dim, spare)
    return max(pairs, CHUNK * v_dim) if home else pairs + 2 * k_dim * v_dim + CHUNK * v_dim
