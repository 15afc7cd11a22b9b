"""The `gemm` workload: one matrix product, in the precision that its path names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from kdaprof.errors import UnavailableError
from kdaprof.runs.cells import DTYPE_BYTES, CellKey
from kdaprof.workloads.gemm.facts import FP8_MULTIPLE, signatures, work
from kdaprof.workloads.inputs import Inputs
from kdaprof.workloads.tensors import NamedInputs, generator

__all__ = ["AGAINST", "chosen", "inputs", "op", "reference", "set_bytes", "settings", "signatures", "tolerance", "work"]

AGAINST = "float64 product"
# Relative L2 on the values as they were rounded to the path's type. tf32 drops 13 bits of each factor: 4e-4, 8e-4 where
# they are cut off. The products of half-precision paths are exact, and their results are rounded once (bfloat16 2e-3).
_TOLERANCE = {"fp32": 1e-5, "tf32": 1.5e-3, "fp16": 2e-3, "bf16": 5e-3, "fp8": 2e-2}

Op = Callable[..., torch.Tensor]
_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8"}


@contextmanager
def settings() -> Iterator[None]:
    """The precision of torch's float32 products as it was, afterwards, whatever happened inside."""
    before = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def inputs(key: CellKey, *, device: str, seed: int, index: int, grad: bool) -> NamedInputs:
    """Factors a [M, K] and b [K, N]: normal values, drawn in float32 on the device.

    Random, not zeros: a product of zeros draws less power and runs faster. fp8's kernel takes b by columns.
    """
    m, k, n = (key.size(axis) for axis in ("M", "K", "N"))
    source = generator(device, seed, index)
    dtype = getattr(torch, key.dtype)
    a = torch.randn(m, k, generator=source, device=device, dtype=torch.float32).to(dtype)
    b = torch.randn(k, n, generator=source, device=device, dtype=torch.float32).to(dtype)
    if key.path == "fp8":
        b = b.t().contiguous().t()
    return NamedInputs("gemm", {"a": a, "b": b}, torch.empty(0, device=device, dtype=torch.float32))


def op(key: CellKey, device: str) -> Op:
    """a, b → a b.

    Errors: UnavailableError, with the reason, where the device has no such precision.
    """
    if key.path == "fp8":
        return _fp8(key, device)
    if key.path == "tf32" and not _has_tf32(device):
        raise UnavailableError("tf32 is a mode of NVIDIA's tensor cores, from compute capability 8.0 on")
    precision = "high" if key.path == "tf32" else "highest"

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        torch.set_float32_matmul_precision(precision)  # 0.1 µs; `settings` puts it back
        return torch.mm(a, b)

    return call


def _has_tf32(device: str) -> bool:
    return device != "cpu" and torch.cuda.get_device_capability(device)[0] >= 8


def _fp8(key: CellKey, device: str) -> Op:
    odd = [axis for axis in ("K", "N") if key.size(axis) % FP8_MULTIPLE]
    if odd:
        sizes = " and ".join(f"{axis} {key.size(axis)}" for axis in odd)
        raise UnavailableError(f"torch's fp8 product needs K and N in multiples of {FP8_MULTIPLE}, not {sizes}")
    one = torch.ones((), dtype=torch.float32, device=device)

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        try:
            return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        except RuntimeError as error:
            # What torch says on a card without fp8: "torch._scaled_mm is only supported on CUDA devices with …".
            if "only supported" not in str(error):
                raise
            raise UnavailableError(str(error).splitlines()[0]) from error

    return call


def reference(given: Inputs, *, backward: bool) -> dict[str, torch.Tensor]:
    """`o` in float64 on the same values. A product has no backward here: `backward` is never true."""
    assert not backward
    a, b = given.tensors()
    return {"o": a.double() @ b.double()}


def tolerance(key: CellKey) -> float:
    """Relative L2 that a precision must keep."""
    return _TOLERANCE[key.path]


def set_bytes(key: CellKey) -> int:
    """Bytes of one input set."""
    m, k, n = (key.size(axis) for axis in ("M", "K", "N"))
    return (m * k + k * n) * DTYPE_BYTES[key.dtype]


def chosen(key: CellKey, operators: dict[str, int]) -> str | None:
    """The precision that the last call took by torch's settings; None where no product ran."""
    if not any("mm" in name.rpartition(".")[2] for name in operators):
        return None
    if key.dtype == "float32":
        return "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    return _NAMES[key.dtype]
