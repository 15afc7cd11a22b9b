"""The `mha` workload: causal `scaled_dot_product_attention` on one backend, or the same made of its parts."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from kdaprof.errors import UnavailableError
from kdaprof.runs.cells import DTYPE_BYTES, CellKey
from kdaprof.workloads.inputs import Inputs
from kdaprof.workloads.mha.backends import BACKENDS, backend_of, choose, kept, why_not
from kdaprof.workloads.mha.facts import COMPOSITE, MATH, signatures, work
from kdaprof.workloads.tensors import NamedInputs, generator

__all__ = ["AGAINST", "chosen", "inputs", "op", "reference", "set_bytes", "settings", "signatures", "tolerance", "work"]

AGAINST = "float64 attention"
# Relative L2. Half-precision paths round the probabilities before the second product, and their gradients again.
_TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 2e-2, "float16": 5e-3}
_SLICE_BYTES = 2 << 30

Op = Callable[..., torch.Tensor]
settings = kept
"""Puts torch's backend switches back after a measurement."""


def inputs(key: CellKey, *, device: str, seed: int, index: int, grad: bool) -> NamedInputs:
    """q, k, v and do, each [B, H, T, D]: normal values, drawn in float32 on the device."""
    shape = tuple(size for _, size in key.shape)
    source = generator(device, seed, index)
    dtype = getattr(torch, key.dtype)

    def draw() -> torch.Tensor:
        return torch.randn(shape, generator=source, device=device, dtype=torch.float32).to(dtype)

    named = {name: draw().requires_grad_(grad) for name in ("q", "k", "v")}
    return NamedInputs("mha", named, draw() if grad else torch.empty(0, device=device, dtype=dtype))


def op(key: CellKey, device: str) -> Op:
    """q, k, v → o. Raises UnavailableError, with torch's words, in the first call of a backend that has no kernel."""
    return _composed() if key.path == COMPOSITE else _on_backend(key.path)


def _on_backend(path: str) -> Op:
    asked = False

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        nonlocal asked
        if asked:
            choose(path)
            return scaled_dot_product_attention(q, k, v, is_causal=True)
        made: list[torch.Tensor] = []
        refusal = why_not(BACKENDS[path], lambda: made.append(scaled_dot_product_attention(q, k, v, is_causal=True)))
        if refusal is not None:
            raise UnavailableError(refusal)
        asked = True
        return made[0]

    return call


def _composed() -> Op:
    hidden: torch.Tensor | None = None

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        nonlocal hidden
        if hidden is None:
            hidden = future(q.shape[-2], q.device)
        return composite(q, k, v, hidden)

    return call


def future(length: int, device: torch.device) -> torch.Tensor:
    """[T, T], true where a query must not look; a model makes it once, so that it is no part of a call."""
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


def composite(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Attention of its parts, matmul, softmax, matmul: q, k, v and the result [B, H, T, D], `hidden` [T, T]."""
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1]))
    return torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1) @ v


def reference(given: Inputs, *, backward: bool) -> dict[str, torch.Tensor]:
    """`o`, and dq, dk, dv, in float64 on the same values, cut along the batch so that a slice stays near 2 GiB."""
    q = given.tensors()[0]
    batch, heads, length = q.shape[0], q.shape[1], q.shape[2]
    step = max(1, min(batch, _SLICE_BYTES // (heads * length * length * 8 * (6 if backward else 3))))
    parts = [_slice(given, first, first + step, backward) for first in range(0, batch, step)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _slice(given: Inputs, first: int, last: int, backward: bool) -> dict[str, torch.Tensor]:
    args = [t.detach()[first:last].double().requires_grad_(backward) for t in given.tensors()]
    with torch.set_grad_enabled(backward):
        q, k, v = args
        o = composite(q, k, v, future(q.shape[-2], q.device))
    made = {"o": o.detach()}
    if backward:
        grads = torch.autograd.grad(o, args, given.do[first:last].double())
        made |= {f"d{name}": grad for name, grad in zip(given.names, grads, strict=True)}
    return made


def tolerance(key: CellKey) -> float:
    """Relative L2 that a path must keep."""
    return _TOLERANCE[key.dtype]


def set_bytes(key: CellKey) -> int:
    """Bytes of one input set with its output."""
    return 4 * math.prod(size for _, size in key.shape) * DTYPE_BYTES[key.dtype]


def chosen(key: CellKey, operators: dict[str, int]) -> str:
    """The path that the operators of a call speak for. Without a fused one, `math` and `composite` look alike."""
    backend = backend_of(operators)
    return key.path if backend == MATH and key.path in (MATH, COMPOSITE) else backend
