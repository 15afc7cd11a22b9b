"""The recurrences of KDA's relatives, token by token: what every path of theirs is checked against."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

from kdaprof.errors import UsageError
from kdaprof.kda.reference import recurrent_gdn2
from kdaprof.kda.shapes import Operands, accumulate_dtype
from kdaprof.kda.surroundings import no_autocast

# Defaults of the published op, which its model never changes.
SQUASH: Final = 1.5
"""The preconditioner stays within 1/1.5 and 1.5."""
EPSILON: Final = 1e-6
CENTER: Final = -0.2
"""Log second moment at which a key is left as it is."""


def recurrence(workload: str, *args: Tensor) -> Tensor:
    """Output o [B, T, H, V] of the op `workload` by definition, from its arguments in order; differentiable.

    Errors: UsageError for an op without a definition here.
    """
    scale = args[0].shape[-1] ** -0.5
    if workload == "gdn":
        return _gdn(*args, scale=scale)
    if workload == "gdn2":
        return recurrent_gdn2(Operands(*args), scale=scale)[0]
    if workload == "precond_kda":
        return recurrent_precond_kda(*args, scale=scale)
    raise UsageError(f"workload {workload!r} has no recurrence here; known: gdn, gdn2, precond_kda")


def _gdn(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *, scale: float) -> Tensor:
    """Gated DeltaNet: KDA with one decay g [B, T, H] for all key channels of a head."""
    gate = beta.unsqueeze(-1)
    return recurrent_gdn2(Operands(q, k, v, g.unsqueeze(-1), gate, gate), scale=scale)[0]


def recurrent_precond_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    g_atk: Tensor,
    beta_atk: Tensor,
    beta: Tensor,
    *,
    scale: float,
) -> Tensor:
    """Preconditioned KDA: what is written goes through keys divided by their running second moment.

    q, k, g [B, T, H, K]; v [B, T, H, V]; g_atk (natural-log decay), beta_atk, beta [B, T, H]. q and k are brought to
    length 1 first, as the op does it. A head's second moment a [K] and state S [K, V] go through each token::

        a   = exp(g_atk_t) a + beta_atk_t k_t²
        r   = log(a + 1e-6) - center
        p_t = k_t 1.5^(-r / (1 + |r|))                 between k_t / 1.5 and 1.5 k_t
        S'  = Diag(exp g_t) S
        S   = S' + beta_t p_t (v_t - S'^T k_t)^T       erased at k, written at p
        o_t = scale * S^T q_t

    Returns: o [B, T, H, V] in v's dtype. Source of the formula:
    https://github.com/fla-org/flash-linear-attention/pull/950.
    """
    acc = accumulate_dtype(v.dtype)
    with no_autocast(q.device.type):
        query, key = (_unit(x.to(acc)) for x in (q, k))
        steps = (
            (query * scale).unsqueeze(-2).unbind(1),
            key.unbind(1),
            v.to(acc).unsqueeze(-2).unbind(1),
            g.to(acc).exp().unsqueeze(-1).unbind(1),
            g_atk.to(acc).exp().unsqueeze(-1).unbind(1),
            beta_atk.to(acc).unsqueeze(-1).unbind(1),
            beta.to(acc).unsqueeze(-1).unsqueeze(-1).unbind(1),
        )
        batch, _, heads, k_dim = q.shape
        moment = query.new_zeros((batch, heads, k_dim))
        state = query.new_zeros((batch, heads, k_dim, v.shape[-1]))
        outputs = []
        for q_t, k_t, v_t, decay, moment_decay, moment_gate, gate in zip(*steps, strict=True):
            moment = moment_decay * moment + moment_gate * k_t.square()
            away = torch.log(moment + EPSILON) - CENTER
            written = k_t * torch.exp(-math.log(SQUASH) * away / (1 + away.abs()))
            state = state * decay
            state = state + gate * written.unsqueeze(-1) * (v_t - k_t.unsqueeze(-2) @ state)
            outputs.append(q_t @ state)
        return torch.stack(outputs, dim=1).squeeze(-2).to(v.dtype)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPSILON)
