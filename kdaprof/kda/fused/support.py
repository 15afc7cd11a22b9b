"""Can the fused kernels run here, and if not, why: asked by the gate before any launch."""

from __future__ import annotations

import importlib
import importlib.util
import os
from functools import lru_cache

import torch

from kdaprof.kda.limits import CHUNK, fused_limit

__all__ = ["CHUNK", "interpreted", "refusal", "triton_missing"]


@lru_cache(maxsize=1)
def triton_missing() -> str | None:
    """Why Triton cannot be used (not installed, or the text of its import error), or None."""
    if importlib.util.find_spec("triton") is None:
        return "package triton is not installed (pip install 'kdaprof[torch]')"
    try:
        importlib.import_module("triton.language")
    except Exception as error:  # a broken install raises anything: ImportError, OSError, RuntimeError
        return f"import of triton failed: {type(error).__name__}: {error}"
    return None


def interpreted() -> bool:
    """Whether Triton's interpreter is on; the variable counts when Triton is imported, so it is set before."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in {"1", "true", "on", "yes", "y"}


@lru_cache(maxsize=1024)
def refusal(*, device_type: str, dtype: torch.dtype, k_dim: int, v_dim: int, chunk: int) -> str | None:
    """The reason why the fused path cannot take such a call, in words, or None when it can.

    `device_type` is `tensor.device.type`; `dtype` that of q, k and v; `k_dim` and `v_dim` are the head sizes.
    The answer for equal arguments is kept for the life of the process.
    """
    name = str(dtype).removeprefix("torch.")
    if (limit := fused_limit(dtype=name, k_dim=k_dim, v_dim=v_dim, chunk=chunk)) is not None:
        return limit
    if device_type != "cuda" and not (device_type == "cpu" and interpreted()):
        return f"device {device_type} (fused needs cuda; on a CPU only under TRITON_INTERPRET=1)"
    return triton_missing()
