"""The gate: which path a call takes, and for every other path why not.

It decides by what the tensors are (device, dtype, extents) and by what surrounds the call (tracing, torch.func),
never by an exact type: parameters, subclasses and wrapped tensors take the path their properties allow.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from kdaprof.errors import UnavailableError, UsageError
from kdaprof.kda.compiled import compiled_refusal
from kdaprof.kda.decision import AUTO, PATHS, Decision, Op
from kdaprof.kda.ledger import note_backward
from kdaprof.kda.shapes import dtype_name
from kdaprof.runs.record import Refusal

__all__ = ["GateQuery", "KdaFallbackWarning", "announce", "check_path", "decide", "note_backward"]


class KdaFallbackWarning(UserWarning):
    """`path="auto"` did not get the fused kernels; said once for each distinct reason in a process."""


@dataclass(frozen=True, slots=True)
class GateQuery:
    """All that a decision depends on."""

    op: Op
    asked: str
    device_type: str
    dtype: torch.dtype
    """The common dtype of q, k and v: the widest of the three."""
    k_dim: int
    v_dim: int
    chunk: int
    traced: bool = False
    functorch: bool = False


NOT_ASKED: Final = "not asked for"
BEHIND_FUSED: Final = "auto prefers fused"
BEHIND_TENSOR: Final = "auto prefers tensor"
ON_REQUEST: Final = "never chosen by auto"


def check_path(path: str) -> None:
    """Raise UsageError for a name that is no path."""
    if path != AUTO and path not in PATHS:
        raise UsageError(f"path {path!r} is unknown; expected one of {', '.join((AUTO, *PATHS))}")


def decide(query: GateQuery) -> Decision:
    """The path of such a call. `auto` takes fused where it can run, else tensor; a named path is never swapped.

    Raises: UsageError for a name that is no path; UnavailableError when the named path cannot run, with the reason.
    """
    check_path(query.asked)
    cannot = {path: _CANNOT[path](query) for path in PATHS}
    if query.asked == AUTO:
        chosen = "tensor" if cannot["fused"] else "fused"
        unasked = {
            "tensor": BEHIND_FUSED,
            "tensor-rows": BEHIND_TENSOR,
            "compiled": ON_REQUEST,
            "reference": ON_REQUEST,
        }
    else:
        chosen, unasked = query.asked, {}
        if reason := cannot[chosen]:
            raise UnavailableError(f"path {chosen!r} cannot run: {reason}")
    refused = tuple(
        Refusal(path=path, reason=cannot[path] or unasked.get(path, NOT_ASKED)) for path in PATHS if path != chosen
    )
    return Decision(
        op=query.op,
        asked=query.asked,
        chosen=chosen,
        refused=refused,
        device=query.device_type,
        dtype=dtype_name(query.dtype),
        k_dim=query.k_dim,
        v_dim=query.v_dim,
        chunk=query.chunk,
        traced=query.traced,
    )


def announce(decision: Decision) -> None:
    """Warn, once for each distinct reason, that `auto` fell back. GDN-2 has no fused path to fall back from."""
    if decision.asked != AUTO or decision.chosen == "fused" or decision.op != "kda":
        return
    reason = decision.why_not("fused")
    if reason is None or reason in _announced:
        return
    _announced.add(reason)
    warnings.warn(f"kda runs path {decision.chosen!r}; fused refused: {reason}", KdaFallbackWarning, stacklevel=5)


_announced: set[str] = set()


def _fused(query: GateQuery) -> str | None:
    if query.op != "kda":
        return "the fused kernels cover KDA (b = w = beta) alone"
    if query.functorch:
        return "inside a torch.func transform (vmap, grad, …): the fused kernels have no rule for it"
    try:
        support = _fused_support()
    except ImportError as error:
        return f"the fused kernels cannot be imported: {error}"
    return support(
        device_type=query.device_type,
        dtype=query.dtype,
        k_dim=query.k_dim,
        v_dim=query.v_dim,
        chunk=query.chunk,
    )


@functools.cache
def _fused_support() -> Callable[..., str | None]:
    from kdaprof.kda.fused import hooks, support  # noqa: PLC0415  reached by the first call, not by the import

    hooks.on_backward = functools.partial(note_backward, "fused")
    return support.refusal


def _compiled(query: GateQuery) -> str | None:
    if query.functorch:
        return "inside a torch.func transform: torch.compile is left to the caller there"
    return compiled_refusal(query.device_type)


def _never(_query: GateQuery) -> None:
    return None


_CANNOT: Final[dict[str, Callable[[GateQuery], str | None]]] = {
    "fused": _fused,
    "tensor": _never,
    "tensor-rows": _never,
    "compiled": _compiled,
    "reference": _never,
}
