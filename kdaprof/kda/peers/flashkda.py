"""FlashKDA's forward: raw gates in bfloat16, K = V = 128, a buffer for the output; no backward.

Its kernel applies the gate itself: decay = bound · sigmoid(exp(A_log) · (g + dt_bias)) with bound < 0, and beta as
the sigmoid of logits. Our g is the decay and our beta the gate, so both are turned back: g = logit(decay / bound) with
A_log and dt_bias at 0. That is done once for each input set, in its first call; the kernel still normalises q and k,
which have length 1 already.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from kdaprof.errors import UnavailableError
from kdaprof.kda.peers.arguments import options
from kdaprof.kda.peers.loading import Installed

_NEEDED = ("q", "k", "v", "g", "beta", "scale", "out", "A_log", "dt_bias", "lower_bound")
_LOWEST = -5.0
"""The lowest bound that its kernels take."""
_ROOM = 1.25
"""The bound stands this much below the lowest decay: a logit near 0 loses least to bfloat16."""
_EDGE = 1e-6
"""Shares are kept this far from 0 and 1, where the logit is infinite."""


@dataclass(frozen=True, slots=True)
class _Raw:
    """One input set as the kernel takes it, and the versions of the tensors that it was made from."""

    versions: tuple[int, int]
    g: Tensor
    beta: Tensor
    a_log: Tensor
    dt_bias: Tensor
    bound: float


class FlashKda:
    """q, k, v, g, beta → o through `flash_kda.fwd`, bfloat16, contiguous, on CUDA."""

    def __init__(self, installed: Installed) -> None:
        self._fwd = installed.function
        self._more = options(
            installed.who,
            installed.function,
            needed=_NEEDED,
            wanted={"initial_state": None, "final_state": None, "cu_seqlens": None},
        )
        self._raw = WeakTensorKeyDictionary()

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
        """One forward call.

        Errors: UnavailableError inside a CUDA Graph capture, and for tensors whose gradient is asked for.
        """
        if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, g, beta)):
            raise UnavailableError("path 'flashkda' has no backward: call it without gradients")
        if q.is_cuda and torch.cuda.is_current_stream_capturing():
            raise UnavailableError(
                "path 'flashkda' takes raw gates, made outside the call: a replay on new inputs would not see them"
            )
        raw: _Raw | None = self._raw.get(g)  # type: ignore[no-untyped-call]  # torch's own class, not annotated
        if raw is None or raw.versions != (g._version, beta._version):
            raw = self._raw[g] = _as_raw(g, beta)
        out = torch.empty_like(v)
        self._fwd(
            q=q, k=k, v=v, g=raw.g, beta=raw.beta, scale=q.shape[-1] ** -0.5, out=out,
            A_log=raw.a_log, dt_bias=raw.dt_bias, lower_bound=raw.bound, **self._more,
        )  # fmt: skip
        return out


def _as_raw(g: Tensor, beta: Tensor) -> _Raw:
    """Gate and beta before activation; reads the lowest decay, and so waits for the device."""
    heads, keys = g.shape[2], g.shape[3]
    lowest = float(g.min()) if g.numel() else -1.0
    if lowest < _LOWEST:
        raise UnavailableError(f"path 'flashkda' takes decays of {_LOWEST:g} and above; these reach {lowest:g}")
    bound = max(_LOWEST, min(_ROOM * lowest, -_EDGE))
    share = (g.double() / bound).clamp(_EDGE, 1 - _EDGE)
    return _Raw(
        versions=(g._version, beta._version),
        g=torch.logit(share).to(g.dtype).contiguous(),
        beta=torch.logit(beta.double().clamp(_EDGE, 1 - _EDGE)).to(beta.dtype).contiguous(),
        a_log=torch.zeros(heads, dtype=torch.float32, device=g.device),
        dt_bias=torch.zeros(heads, keys, dtype=torch.float32, device=g.device),
        bound=bound,
    )
