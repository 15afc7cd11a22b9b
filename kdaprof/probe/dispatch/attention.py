"""The rows of `scaled_dot_product_attention`: the backend that torch chooses, and why it cannot take each other one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kdaprof.instruments.device import Device
from kdaprof.probe.dispatch.matrix import one_line
from kdaprof.probe.dispatch.seen import OperatorsSeen
from kdaprof.runs.cells import make_shape
from kdaprof.runs.dispatch import DispatchRow
from kdaprof.runs.record import Refusal

SIZES = (1, 2, 32, 64)
"""B, H, T, D."""
CONTEXTS = ("plain", "no_grad", "mask")
_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "mem-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
# Parts of the operators' names, which are telling where the function's own name is not.
_OPERATORS = {"flash_attention": "flash", "cudnn_attention": "cudnn", "efficient_attention": "mem-efficient"}
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
    q, k, v = (
        torch.randn(SIZES, device=name, dtype=getattr(torch, dtype), requires_grad=context == "plain") for _ in range(3)
    )
    mask = torch.ones(SIZES[2], SIZES[2], device=name, dtype=torch.bool).tril() if context == "mask" else None

    def call() -> None:
        with torch.set_grad_enabled(context == "plain"):
            scaled_dot_product_attention(q, k, v, attn_mask=mask)

    try:
        with OperatorsSeen() as seen:
            call()
    except RuntimeError as error:
        return replace(row, status="unavailable", detail=one_line(error))
    chosen = _backend_of(seen.names)
    ran = tuple(name for name in seen.names if "attention" in name)
    refused = tuple(
        Refusal(path=path, reason=_why_not(backend, call) or _PREFERRED.format(chosen))
        for path, backend in _BACKENDS.items()
        if path != chosen
    )
    return replace(row, chosen=chosen, refused=refused, ran=ran)


def _backend_of(operators: dict[str, int]) -> str:
    for part, backend in _OPERATORS.items():
        if any(part in name for name in operators):
            return backend
    return "math"


def _why_not(backend: SDPBackend, call: object) -> str | None:
    """Why this backend cannot take the call, in torch's own words; None when it can."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel([backend]):
                call()  # type: ignore[operator]
        except RuntimeError as error:
            # torch gives its reasons as warnings, and only then that nothing is left.
            reasons = [_told(str(one.message)) for one in said if "not used because" not in str(one.message)]
            return "UNAVAILABLE: " + ("; ".join(dict.fromkeys(filter(None, reasons))) or _told(one_line(error)))
    return None


def _told(text: str) -> str:
    """Without the place in torch's sources that a warning ends with, and the advice that follows."""
    return " ".join(text.split(" (Triggered internally", maxsplit=1)[0].split()).split(". This is likely")[0]
