"""The public op: `kda` and its general form `gdn2`, each one call down the path the gate chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kdaprof.errors import KdaprofError
from kdaprof.kda.decision import AUTO, Op
from kdaprof.kda.gate import GateQuery, announce, check_path, decide
from kdaprof.kda.ledger import Tally, note_forward, tally_of
from kdaprof.kda.runners import Result, Runner, runner, watch_backward
from kdaprof.kda.shapes import Operands, check_call, check_scale, common_dtype
from kdaprof.kda.surroundings import any_overrides_dispatch, dispatch_modes_active, functorch_active


def kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    chunk: int = 16,
    path: str = AUTO,
) -> tuple[Tensor, Tensor | None]:
    """Kimi Delta Attention over whole sequences, differentiable in every tensor.

    A head's state S [K, V] goes through each token: decay, erase, write, then read::

        S'  = Diag(exp g_t) S
        S   = S' + beta_t k_t (v_t - S'^T k_t)^T
        o_t = scale * S^T q_t

    Args:
        q: queries [B, T, H, K].
        k: keys [B, T, H, K], of length 1 (with longer ones the state may blow up).
        v: values [B, T, H, V].
        g: natural-log decay [B, T, H, K], at most 0. `tensor`, `tensor-rows` and `compiled` need its sum within
            each 16 tokens of a chunk to stay at or above -80 in every channel, which g ≥ -5 holds; `fused` and
            `reference` take any g ≤ 0.
        beta: write strength [B, T, H], in 0…1 (up to 2 with negative eigenvalues).
        scale: factor on the output; None for K ** -0.5.
        initial_state: [B, H, K, V]; None for zeros.
        output_final_state: whether to return the state after the last token.
        chunk: tokens handled at once; `fused` is written for 16, `reference` has no chunks.
        path: `auto` (fused where it can run, else tensor, said once for each reason) or `fused`, `tensor`,
            `tensor-rows`, `compiled`, `reference`. A named path runs or raises; it is never swapped for another.

    dtypes: float32, bfloat16 and float16, which may be mixed, or float64 for all (not `fused`). State and sums are
    float32 (float64 for float64), under autocast too (call backward outside it, as torch advises: inside, autocast
    turns the products of every path but `fused` into half precision). Strides are free.

    Values are not looked at, since that would wait for the device: see `validate`.

    Returns: o [B, T, H, V] in v's dtype, and the final state [B, H, K, V] in float32 (float64 for float64) or None.

    Raises: ShapeError, DtypeError, DeviceError, UsageError before anything is launched; UnavailableError when the
    path named cannot run, with the reason.
    """
    x = Operands(q, k, v, g, beta, beta)
    return _call("kda", x, scale, initial_state, output_final_state, chunk, path)


def gdn2(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    b: Tensor,
    w: Tensor,
    *,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    chunk: int = 16,
    path: str = AUTO,
) -> tuple[Tensor, Tensor | None]:
    """GDN-2, the general form of KDA: an erase gate for every key channel, a write gate for every value channel.

    ::

        S'  = Diag(exp g_t) S
        S   = S' + k_t (w_t * v_t - (b_t * k_t)^T S')^T
        o_t = scale * S^T q_t

    b [B, T, H, K] is the erase gate, w [B, T, H, V] the write gate. The other arguments, dtypes, results and errors
    are those of `kda`, which is the case b = w = beta. `fused` does not cover it: `auto` takes `tensor`.
    """
    x = Operands(q, k, v, g, b, w)
    return _call("gdn2", x, scale, initial_state, output_final_state, chunk, path)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is settled once for all calls that look alike: checked, decided, and which function to run."""

    tally: Tally
    scale: float
    run: Runner
    watched: bool
    """Whether the backward must be counted from here; the fused Function counts its own."""


_plans: dict[tuple[Any, ...], _Plan] = {}
_MOST_PLANS = 4096
"""Enough for any run; a stream of ever new lengths must not grow the table for ever."""


def _call(
    op: Op,
    x: Operands,
    scale: float | None,
    initial_state: Tensor | None,
    final_state: bool,
    chunk: int,
    path: str,
) -> Result:
    if torch.compiler.is_compiling():
        from kdaprof.kda.traced import call_traced  # noqa: PLC0415  it imports the compiler, 1.5 s

        return call_traced(op, x, scale, initial_state, final_state, chunk, path)
    try:
        key = _key(op, x, initial_state, chunk, path)
        plan = _plans.get(key)
    except (AttributeError, RuntimeError, TypeError) as error:
        check_call(op, x, initial_state, chunk)  # what is no tensor, or has no shape, gets its own line
        check_path(path)
        raise KdaprofError(f"{op} cannot tell what it was given: {error}") from error
    if plan is None:
        plan = _make_plan(op, x, initial_state, chunk, path)
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
    if scale is None:
        scale = plan.scale
    else:
        check_scale(scale)
    # Before the run: checkpointing stops a recomputed forward early, by an exception, once it has what it needs.
    note_forward(plan.tally)
    result = plan.run(x, scale=scale, initial_state=initial_state, final_state=final_state, chunk=chunk)
    if plan.watched:
        watch_backward(plan.tally, result)
    return result


def _key(op: Op, x: Operands, initial_state: Tensor | None, chunk: int, path: str) -> tuple[Any, ...]:
    """Everything a plan depends on; built for every call, hence unrolled (about 2 µs for five tensors).

    A class stands here only so that what it can do is looked up once, never to be compared with another.
    """
    q, k, v, g, b, w = x
    s = initial_state
    return (
        op,
        path,
        chunk,
        functorch_active(),
        dispatch_modes_active(),
        *(q.shape, q.dtype, q.device, q.layout, q.__class__),
        *(k.shape, k.dtype, k.device, k.layout, k.__class__),
        *(v.shape, v.dtype, v.device, v.layout, v.__class__),
        *(g.shape, g.dtype, g.device, g.layout, g.__class__),
        *(b.shape, b.dtype, b.device, b.layout, b.__class__),
        None if w is b else (w.shape, w.dtype, w.device, w.layout, w.__class__),
        None if s is None else (s.shape, s.dtype, s.device, s.layout, s.__class__),
    )


def _make_plan(op: Op, x: Operands, initial_state: Tensor | None, chunk: int, path: str) -> _Plan:
    shape = check_call(op, x, initial_state, chunk)
    query = GateQuery(
        op=op,
        asked=path,
        device_type=x.q.device.type,
        dtype=common_dtype(x),
        k_dim=shape.K,
        v_dim=shape.V,
        chunk=chunk,
        functorch=functorch_active(),
    )
    decision = decide(query)
    announce(decision)
    as_operator = dispatch_modes_active() or any_overrides_dispatch((*x, initial_state))
    return _Plan(
        tally=tally_of(decision),
        scale=shape.K**-0.5,
        run=runner(decision.chosen, traced=False, as_operator=as_operator),
        watched=decision.chosen != "fused" or as_operator,
    )
