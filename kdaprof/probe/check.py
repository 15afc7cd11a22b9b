"""Right before fast: outputs and gradients of a path against the float64 recurrence, and replays against eager."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from kdaprof.errors import KdaprofError
from kdaprof.kda import kda
from kdaprof.kda.peers.facts import peer_tolerance
from kdaprof.runs.record import Check, TensorError
from kdaprof.workloads.delta.call import DELTA, recurrence
from kdaprof.workloads.inputs import Inputs

# Relative L2 that a path must keep. True fp32 arithmetic stays far below; plain tf32 (≈ 1e-3) fails, as it should.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 1e-2, "float16": 1e-2}
REPLAY_TOLERANCE = 1e-6
_SLICE_BYTES = 4 << 30

Tensors = Mapping[str, torch.Tensor]


def tolerance_of(path: str, dtype: str) -> float:
    """What a path has to keep in this dtype: a peer what was declared for that peer, all of ours `TOLERANCE`."""
    declared = peer_tolerance(path, dtype)
    return TOLERANCE[dtype] if declared is None else declared


def reference(inputs: Inputs, *, backward: bool) -> dict[str, torch.Tensor]:
    """`o` and the gradients of every input from the float64 recurrence on the same values.

    The batch is cut so that the graph of one slice stays under 4 GiB: the op has no term across the batch.
    """
    q, _, v, *_ = inputs.tensors()
    batch, length, heads, k_dim = q.shape
    per_item = length * heads * k_dim * v.shape[-1] * 8 * (6 if backward else 1)
    step = max(1, min(batch, _SLICE_BYTES // max(per_item, 1)))
    parts = [_reference_slice(inputs, first, first + step, backward) for first in range(0, batch, step)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _reference_slice(inputs: Inputs, first: int, last: int, backward: bool) -> dict[str, torch.Tensor]:
    args = [t.detach()[first:last].double().requires_grad_(backward) for t in inputs.tensors()]
    with torch.set_grad_enabled(backward):
        o = recurrence(inputs.workload, *args) if inputs.workload in DELTA else kda(*args, path="reference")[0]
    made = {"o": o.detach()}
    if backward:
        grads = torch.autograd.grad(o, args, inputs.do[first:last].double())
        made |= {f"d{name}": grad for name, grad in zip(inputs.names, grads, strict=True)}
    return made


class OutputError(KdaprofError):
    """A path that does not return what it must: an output or gradient is absent, or of another shape."""


def compare(outputs: Tensors, expected: Tensors, *, against: str, tolerance: float) -> Check:
    """Relative L2 and largest absolute error of everything expected; a tensor that is not finite never passes.

    Errors: OutputError when an expected tensor is absent or has another shape: broadcasting would compare it wrongly.
    """
    for name, want in expected.items():
        if name not in outputs:
            raise OutputError(f"{name} was not returned; expected {tuple(want.shape)}")
        if outputs[name].shape != want.shape:
            raise OutputError(f"{name} has shape {tuple(outputs[name].shape)}, expected {tuple(want.shape)}")
    rows = tuple(_error(name, outputs[name], want) for name, want in expected.items())
    passed = bool(rows) and all(row.finite and row.l2 is not None and row.l2 <= tolerance for row in rows)
    return Check(against=against, tolerance_l2=tolerance, tensors=rows, passed=passed)


def _error(name: str, got: torch.Tensor, want: torch.Tensor) -> TensorError:
    difference = got.double() - want.double()
    finite = bool(torch.isfinite(got).all())
    norm = float(want.double().norm())
    distance = float(difference.norm())
    l2 = distance / norm if norm > 0 else distance
    largest = float(difference.abs().max()) if difference.numel() else 0.0
    return TensorError(
        name=name,
        l2=l2 if math.isfinite(l2) else None,
        max_abs=largest if math.isfinite(largest) else None,
        finite=finite,
    )
