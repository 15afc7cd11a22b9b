"""Does a plan compute the op? 64 tokens of one head against the recurrence in float64 on the CPU.

Meant for a thread of its own: hooks on saved tensors, dispatch modes and autocast of the calling thread stay out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kdaprof.kda.fused.plan import BackwardPlan, Dtypes, ForwardPlan, dots
from kdaprof.kda.fused.run import on, run_backward, run_forward
from kdaprof.kda.reference import recurrent_gdn2
from kdaprof.kda.shapes import Operands

TOKENS = 64
"""Two groups: states go in and out of a group, and fit at home."""

LIMITS = {"tf32x3": 1e-4, "ieee": 1e-4, "tf32": 5e-2}
"""Relative L2. Far above what each precision loses, far below what a wrong result shows."""


def _tensors(device: torch.device, dtypes: Dtypes, k_dim: int, v_dim: int, tokens: int) -> list[Tensor | None]:
    """q, k, v, g, beta, h0 like those of training, rounded to their dtypes; the process's random state is not used."""
    make = torch.Generator().manual_seed(k_dim * 1000 + v_dim)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=make)

    q, k = (torch.nn.functional.normalize(normal(1, tokens, 1, k_dim), dim=-1) for _ in range(2))
    g = -0.5 * torch.rand(1, tokens, 1, k_dim, generator=make)
    made = (q, k, normal(1, tokens, 1, v_dim), g, torch.rand(1, tokens, 1, generator=make), normal(1, 1, k_dim, v_dim))
    return [None if kind is None else x.to(kind).to(device) for x, kind in zip(made, dtypes, strict=True)]


def _judge(pairs: dict[str, tuple[Tensor | None, Tensor | None]], limit: float) -> str | None:
    """The first result that is not the recurrence's, in words."""
    for name, (got, want) in pairs.items():
        if got is None or want is None:
            continue
        error = float((got.cpu().double() - want).norm() / want.norm())
        most = max(limit, torch.finfo(got.dtype).eps)  # beside float32 a single input may be of half precision
        if not error <= most:  # NaN too
            return f"wrong result: {name} is {error:.1e} (relative L2) off the float64 recurrence, limit {most:.0e}"
    return None


def _reference(inputs: list[Tensor | None]) -> tuple[list[Tensor | None], Tensor, Tensor]:
    """Float64 leaves on the CPU, o and the final state."""
    wide = [None if x is None else x.cpu().double().requires_grad_() for x in inputs]
    q, k, v, g, beta, h0 = wide
    assert q is not None
    assert k is not None
    assert v is not None
    assert g is not None
    assert beta is not None
    with torch.enable_grad():
        gate = beta.unsqueeze(-1)
        o, ht = recurrent_gdn2(Operands(q, k, v, g, gate, gate), scale=0.5, initial_state=h0)
    return wide, o, ht


def check_forward(
    plan: ForwardPlan, device: torch.device, dtypes: Dtypes, k_dim: int, v_dim: int, final_state: bool, precision: str
) -> str | None:
    """Why `plan` cannot be used, or None. Whatever the compiler or the launch raises comes out as it is."""
    with on(device), torch.no_grad():
        inputs = _tensors(device, dtypes, k_dim, v_dim, TOKENS)
        q, k, v, g, beta, h0 = inputs
        o, ht, _ = run_forward(plan, q, k, v, g, beta, h0, 0.5, final_state)  # type: ignore[arg-type]
        _, want, want_ht = _reference(inputs)
        return _judge({"o": (o, want), "the final state": (ht, want_ht)}, LIMITS[dots(dtypes, precision)])


def check_backward(
    plan: BackwardPlan, forward: ForwardPlan, device: torch.device, dtypes: Dtypes, k_dim: int, v_dim: int,
    has_dht: bool, home: bool, precision: str,
) -> str | None:  # fmt: skip
    """The like for the backward; `forward` is a plan that works."""
    with on(device), torch.no_grad():
        inputs = _tensors(device, dtypes, k_dim, v_dim, TOKENS if home else TOKENS - 24)
        q, k, v, g, beta, h0 = inputs
        rec = run_forward(forward, q, k, v, g, beta, h0, 0.5, has_dht)[2]  # type: ignore[arg-type]
        do = torch.ones_like(v)  # type: ignore[arg-type]
        dht = torch.ones(1, 1, k_dim, v_dim, device=device) if has_dht else None
        got = run_backward(plan, q, k, v, g, beta, h0, rec, do, dht, 0.5)  # type: ignore[arg-type]
        wide, o, ht = _reference(inputs)
        leaves = [x for x in wide if x is not None]
        seeds = (do.cpu().double(), None if dht is None else dht.cpu().double())
        outs = (o, ht)[: 1 + has_dht]
        want = torch.autograd.grad(outs, leaves, seeds[: 1 + has_dht])
        names = ("dq", "dk", "dv", "dg", "dbeta", "the initial state's gradient")
        return _judge(dict(zip(names, zip(got, want, strict=False), strict=False)), LIMITS[dots(dtypes, precision)])
