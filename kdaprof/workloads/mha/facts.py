"""What is known of attention before it runs: its paths, its work, the kernel names that speak for each backend.

Pure data; no torch. The field report's shape is the default: B 10, H 12, T 512, D 64, causal.
"""

from __future__ import annotations

from typing import Final

from kdaprof.runs.cells import DTYPE_BYTES, CellKey
from kdaprof.runs.record import PathSignature, Work

COMPOSITE: Final = "composite"
MATH: Final = "math"
PATHS: Final = ("flash", "cudnn", "mem-efficient", MATH, COMPOSITE)
"""Backends of `scaled_dot_product_attention`, and the same made of matmul, softmax, matmul."""
DTYPES: Final = ("float32", "bfloat16", "float16")
FIELD_SHAPE: Final = (10, 12, 512, 64)
HOST_SHAPE: Final = (1, 2, 48, 16)
"""B, H, T, D without a GPU."""

_PRODUCTS: Final = {"fwd": 2, "bwd": 5, "fwdbwd": 7}
"""Matrix products over the T × T square: Q Kᵀ and P V forward; backward P once more, dV, dP, dQ, dK."""
_TENSORS: Final = {"fwd": 4, "bwd": 7, "fwdbwd": 8}
"""Tensors of B·H·T·D that a call has to move: q, k, v, o; and in a backward do, dq, dk, dv."""

# In the order in which they are asked: cuDNN's kernels have `flash` in their names too.
_OWN: Final = (
    PathSignature(path="cudnn", patterns=(r"cudnn_generated", r"(?i)cudnn.*(sdpa|fmha|flash)")),
    PathSignature(path="flash", patterns=(r"pytorch_flash", r"flash_(fwd|bwd)")),
    PathSignature(path="mem-efficient", patterns=(r"fmha_cutlass", r"PyTorchMemEffAttention", r"AttentionKernel<")),
)
_APART: Final = (r"(?i)softmax", r"(?i)gemm", r"nvjet", r"cutlass(?!.*[Aa]ttention)")


def work(key: CellKey) -> Work:
    """Operations and compulsory bytes of one causal call: the T (T + 1) / 2 pairs that the mask leaves."""
    batch, heads, length, depth = (key.size(axis) for axis in ("B", "H", "T", "D"))
    pairs = length * (length + 1) // 2
    return Work(
        flops=_PRODUCTS[key.phase] * 2 * batch * heads * pairs * depth,
        bytes_compulsory=_TENSORS[key.phase] * batch * heads * length * depth * DTYPE_BYTES[key.dtype],
        bytes_path=None,
        rate=_rate(key),
    )


def _rate(key: CellKey) -> str:
    """The ceiling that can bind: a fused float32 kernel may make its products of three tf32 ones each."""
    if key.dtype != "float32":
        return f"matmul_{key.dtype}"
    return "matmul_float32" if key.path in (MATH, COMPOSITE) else "matmul_tf32x3"


def signatures(key: CellKey) -> tuple[PathSignature, ...]:
    """Each fused backend by its own kernels; products and softmax apart speak for `math` or `composite`.

    The kernels of those two are the same, so that only the cell's own of them is among its signatures: which of them
    was called is for the operators to say.
    """
    own = key.path if key.path in (MATH, COMPOSITE) else MATH
    return (*_OWN, PathSignature(path=own, patterns=_APART))
