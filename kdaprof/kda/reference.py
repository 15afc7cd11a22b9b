"""The recurrence of GDN-2, token by token: the path that every other path is checked against.

KDA is the case b = w = beta. T dependent steps, so it is never fast; in float64 it is exact to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kdaprof.kda.shapes import Operands, accumulate_dtype, state_before
from kdaprof.kda.surroundings import no_autocast


def recurrent_gdn2(
    x: Operands,
    *,
    scale: float,
    initial_state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence; differentiable by autograd, finite for every g ≤ 0.

    initial_state [B, H, K, V] or None for zeros. Sums and state are float32 (float64 for float64 inputs).

    Each step decays first, then erases and writes, then reads (`S` [K, V] a head)::

        S'  = Diag(exp g_t) S
        S   = S' + k_t (w_t * v_t - (b_t * k_t)^T S')^T
        o_t = scale * S^T q_t

    Returns: o [B, T, H, V] in v's dtype, and the state after the last token [B, H, K, V].
    """
    acc = accumulate_dtype(x.v.dtype)
    with no_autocast(x.q.device.type):
        keys = x.k.to(acc)
        steps = (
            (x.q.to(acc) * scale).unsqueeze(-2).unbind(1),
            keys.unsqueeze(-1).unbind(1),
            (x.v.to(acc) * x.w.to(acc)).unsqueeze(-2).unbind(1),
            (keys * x.b.to(acc)).unsqueeze(-2).unbind(1),
            x.g.to(acc).exp().unsqueeze(-1).unbind(1),
        )
        state = state_before(x, initial_state)
        outputs = []
        for query, key, write, erase, decay in zip(*steps, strict=True):
            state = state * decay
            state = state + key * (write - erase @ state)
            outputs.append(query @ state)
        return torch.stack(outputs, dim=1).squeeze(-2).to(x.v.dtype), state
