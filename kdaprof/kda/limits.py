"""What the fused kernels are written for, whatever the machine: known before torch is imported."""

from __future__ import annotations

from typing import Final

CHUNK: Final = 16
MAX_DIM: Final = 128
DTYPES: Final = ("float32", "bfloat16", "float16")


def fused_limit(*, dtype: str, k_dim: int, v_dim: int, chunk: int) -> str | None:
    """Why no machine runs such a call on the fused path, in words, or None. `dtype` by torch's name: `float32`."""
    if dtype not in DTYPES:
        return f"dtype {dtype} (fused takes {', '.join(DTYPES)})"
    if chunk != CHUNK:
        return f"chunk {chunk} (fused is written for {CHUNK})"
    for name, size in (("K", k_dim), ("V", v_dim)):
        if size <= 0 or size % 16 or size > MAX_DIM:
            return f"{name} = {size} (fused takes multiples of 16 up to {MAX_DIM})"
    return None
