"""The two calls of the fused path on contiguous tensors: find the plan, run it."""

from __future__ import annotations

from torch import Tensor

from kdaprof.kda.fused.entries import choose_backward, choose_forward
from kdaprof.kda.fused.run import dtypes_of, run_backward, run_forward
from kdaprof.kda.fused.sizes import at_home


def forward(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None, scale: float,
    final_state: bool, precision: str, *, train: bool = False, keep: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor]:  # fmt: skip
    """See `run_forward`; `train` says that a backward will follow, `keep` that one may."""
    dtypes = dtypes_of(q, k, v, g, beta, h0)
    k_dim, v_dim = q.shape[3], v.shape[3]
    home = at_home(dtypes, k_dim, v_dim, q.shape[1]) if train else None
    plan = choose_forward(q.device, dtypes, k_dim, v_dim, final_state, precision, home, keep)
    return run_forward(plan, q, k, v, g, beta, h0, scale, final_state)


def backward(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, h0: Tensor | None, rec: Tensor, do: Tensor | None,
    dht: Tensor | None, scale: float, precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """See `run_backward`."""
    dtypes = dtypes_of(q, k, v, g, beta, h0)
    k_dim, v_dim = q.shape[3], v.shape[3]
    home = at_home(dtypes, k_dim, v_dim, q.shape[1])
    plan = choose_backward(q.device, dtypes, k_dim, v_dim, dht is not None, home, precision)
    return run_backward(plan, q, k, v, g, beta, h0, rec, do, dht, scale)
