"""The rows of `scaled_dot_product_attention`: the backend that torch chooses, and why it cannot take each other one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch.nn.functional import scaled_dot_product_attention

from kdaprof.instruments.device import Device
from kdaprof.probe.dispatch.matrix import one_line
from kdaprof.probe.dispatch.seen import OperatorsSeen
from kdaprof.runs.cells import make_shape
from kdaprof.runs.dispatch import DispatchRow
from kdaprof.runs.record import Refusal
from kdaprof.workloads.mha.backends import BACKENDS, backend_of, why_not

SIZES = (1, 2, 32, 64)
"""B, H, T, D."""
_CALLS = {
    "plain": ("none", True),
    "no_grad": ("none", False),
    "causal": ("causal", True),
    "causal-no_grad": ("causal", False),
    "mask": ("bool", False),
    "mask-grad": ("bool", True),
    "bias": ("float", False),
    "bias-grad": ("float", True),
}
"""Context: the mask (one of truth values, one that is added), and whether q, k and v ask for gradients."""
CONTEXTS = tuple(_CALLS)
_PREFERRED = "torch prefers {}"


def attention_rows(
    device: Device, *, dtypes: Sequence[str], contexts: Sequence[str] = CONTEXTS
) -> Iterator[DispatchRow]:
    """A row a context and dtype: the operator that ran decides, not a table."""
    for context in (name for name in CONTEXTS if name in contexts):
        for dtype in dtypes:
            yield _row(device, context, dtype)


def _row(device: Device, context: str, dtype: str) -> DispatchRow:
    shape = dict(make_shape("mha", SIZES))
    row = DispatchRow(op="sdpa", context=context, dtype=dtype, shape=shape, status="ok", chosen=None)
    name = "cpu" if device.index is None else f"cuda:{device.index}"
    kind, grad = _CALLS[context]
    q, k, v = (torch.randn(SIZES, device=name, dtype=getattr(torch, dtype), requires_grad=grad) for _ in range(3))
    mask = _mask(kind, q)

    def call() -> None:
        with torch.set_grad_enabled(grad):
            scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=kind == "causal")

    try:
        with OperatorsSeen() as seen:
            call()
    except RuntimeError as error:
        return replace(row, status="unavailable", detail=one_line(error))
    chosen = backend_of(seen.names)
    ran = tuple(name for name in seen.names if "attention" in name)
    refused = tuple(
        Refusal(path=path, reason=why_not(backend, call) or _PREFERRED.format(chosen))
        for path, backend in BACKENDS.items()
        if path != chosen
    )
    return replace(row, chosen=chosen, refused=refused, ran=ran)


def _mask(kind: str, q: torch.Tensor) -> torch.Tensor | None:
    """A lower triangle as truth values, or as what is added to the scores in the dtype of q."""
    if kind not in ("bool", "float"):
        return None
    seen = torch.ones(SIZES[2], SIZES[2], device=q.device, dtype=torch.bool).tril()
    return seen if kind == "bool" else torch.zeros_like(seen, dtype=q.dtype).masked_fill(~seen, float("-inf"))
