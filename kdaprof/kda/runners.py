"""How each path is called: from the op's arguments to the path's own, and how its backward is counted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from kdaprof.kda.compiled import compiled_gdn2
from kdaprof.kda.ledger import Tally, note_backward_of
from kdaprof.kda.reference import recurrent_gdn2
from kdaprof.kda.shapes import Operands, common_dtype
from kdaprof.kda.surroundings import functorch_active
from kdaprof.kda.tensor import chunk_gdn2

Result = tuple[Tensor, Tensor | None]


class Runner(Protocol):
    """Runs checked operands down one path: o [B, T, H, V] in v's dtype, final state [B, H, K, V] or None.

    KDA passes beta [B, T, H] as both `b` and `w`. Launches the path's work and returns without waiting for it.
    """

    def __call__(
        self, x: Operands, *, scale: float, initial_state: Tensor | None, final_state: bool, chunk: int
    ) -> Result:
        """Run one call."""
        ...


def runner(path: str, *, traced: bool, as_operator: bool) -> Runner:
    """The runner of a path.

    `traced`: torch.compile looks on. `as_operator`: the kernels must be reached as registered operators, because
    a dispatch mode is on or a tensor answers operators itself.
    """
    if path == "fused":
        from kdaprof.kda import fused  # noqa: PLC0415  the gate has found that it can be imported

        return functools.partial(_run_fused, fused.fused_kda_op if traced or as_operator else fused.fused_kda)
    # Inside a compiled region the path `compiled` is its own body: the region is what compiles it.
    return _RUNNERS["tensor" if traced and path == "compiled" else path]


def watch_backward(tally: Tally, outputs: Result) -> None:
    """Count a backward pass of this call when one really runs: once for both outputs, again for a retained graph."""
    if functorch_active():
        return  # torch.func differentiates by levels of its own: a hook would run in none or in several of them
    watch: _Watch | None = None
    for output in outputs:
        node = None if output is None else output.grad_fn
        if node is not None:
            watch = watch or _Watch(tally)
            node.register_prehook(watch)


class _Watch:
    """A hook before the outputs' gradient nodes; both may run in one pass, which counts once."""

    __slots__ = ("seen", "tally")

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.seen = -1

    def __call__(self, _gradients: Any) -> None:
        task = torch._C._current_graph_task_id()
        if task != self.seen:
            self.seen = task
            note_backward_of(self.tally)


def _run_reference(x: Operands, *, scale: float, initial_state: Tensor | None, final_state: bool, chunk: int) -> Result:
    o, state = recurrent_gdn2(_by_channel(x), scale=scale, initial_state=initial_state)
    return o, state if final_state else None


def _run_chunked(
    form: Callable[..., tuple[Tensor, Tensor]],
    x: Operands,
    *,
    scale: float,
    initial_state: Tensor | None,
    final_state: bool,
    chunk: int,
) -> Result:
    o, state = form(_by_channel(x), scale=scale, initial_state=initial_state, chunk=chunk)
    return o, state if final_state else None


def _by_channel(x: Operands) -> Operands:
    """KDA's gates as GDN-2's: beta [B, T, H] becomes one shared [B, T, H, 1]."""
    if x.b.dim() == 4:
        return x
    gate = x.b.unsqueeze(-1)
    return x._replace(b=gate, w=gate)


def _run_fused(
    form: Callable[..., Result],
    x: Operands,
    *,
    scale: float,
    initial_state: Tensor | None,
    final_state: bool,
    chunk: int,
) -> Result:
    q, k, v, g, beta, _ = x
    out = v.dtype
    if not (q.dtype == k.dtype == out):
        # Autocast hands over q in bfloat16 and a normalised k in float32; the kernels read one dtype.
        dtype = common_dtype(x)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    o, state = form(q, k, v, g, beta, scale=scale, initial_state=initial_state, output_final_state=final_state)
    return (o if o.dtype == out else o.to(out)), state


_RUNNERS: Final[dict[str, Runner]] = {
    "reference": _run_reference,
    "tensor": functools.partial(_run_chunked, chunk_gdn2),
    "tensor-rows": functools.partial(_run_chunked, functools.partial(chunk_gdn2, solver="rows")),
    "compiled": functools.partial(_run_chunked, compiled_gdn2),
}
