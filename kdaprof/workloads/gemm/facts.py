"""What is known of a matrix product before it runs: its precisions, its work, the kernel names that speak for each.

Pure data; no torch. The field report's product is the default: [5120, 2048] × [2048, 8192], 171.8 GFLOP.
"""

from __future__ import annotations

from typing import Final

from kdaprof.runs.cells import DTYPE_BYTES, CellKey
from kdaprof.runs.record import PathSignature, Work

DTYPE_OF: Final = {
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
}
PATHS: Final = tuple(DTYPE_OF)
"""Precisions of the product; sums are kept in float32 by all of them."""
FIELD_SHAPE: Final = (5120, 2048, 8192)
HOST_SHAPE: Final = (64, 32, 48)
"""M, K, N without a GPU."""
FP8_MULTIPLE: Final = 16
"""Sizes that torch's fp8 product asks K and N to be a multiple of."""

_RATE: Final = {
    "fp32": "matmul_float32",
    "tf32": "matmul_tf32",
    "fp16": "matmul_float16",
    "bf16": "matmul_bfloat16",
    "fp8": "matmul_float8",
}

# cuBLAS's newer kernels are called nvjet_, on some cards with the architecture, and a letter a type, A's first:
# h float16, t bfloat16, q fp8, s float32 (only as tf32: their tensor cores take no float32). The first that matches
# counts, so that float32 is what says of no other type; its kernels are the only ones without one (sgemm, ffma).
_NVJET: Final = r"nvjet_(?:sm\d+_)?"
_SIGNATURES: Final = (
    PathSignature(path="fp8", patterns=(rf"{_NVJET}q", r"(?i)e4m3", r"(?i)fp8")),
    PathSignature(path="tf32", patterns=(rf"{_NVJET}s(?!m\d)", r"(?i)tf32", r"(?i)s1688gemm")),
    PathSignature(path="bf16", patterns=(rf"{_NVJET}t", r"(?i)bf16", r"bfloat16")),
    PathSignature(
        path="fp16", patterns=(rf"{_NVJET}h", r"(?i)(?<!b)f16", r"(?i)hgemm", r"(?i)h(1688|16816|884)", r"__half")
    ),
    PathSignature(path="fp32", patterns=(r"(?i)gemm", r"(?i)ffma", r"(?i)simt")),
)


def work(key: CellKey) -> Work:
    """2·M·K·N operations; each matrix moved once, fp8's product written as bfloat16."""
    m, k, n = (key.size(axis) for axis in ("M", "K", "N"))
    width = DTYPE_BYTES[key.dtype]
    out = 2 if key.path == "fp8" else width
    return Work(
        flops=2 * m * k * n,
        bytes_compulsory=(m * k + k * n) * width + m * n * out,
        bytes_path=None,
        rate=_RATE[key.path],
    )


def signatures(key: CellKey) -> tuple[PathSignature, ...]:
    """The same for every cell: a product that took another precision than it was asked for is named by its kernel."""
    return _SIGNATURES
