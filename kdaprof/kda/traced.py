"""The call as torch.compile and torch.export see it: no table, no counter, no hook, no range in the graph."""

from __future__ import annotations

from operator import index

import torch
from torch import Tensor

from kdaprof.errors import UnavailableError
from kdaprof.kda.decision import Op
from kdaprof.kda.gate import GateQuery, announce, decide
from kdaprof.kda.ledger import note_traced, tally_of
from kdaprof.kda.runners import Result, runner
from kdaprof.kda.shapes import Operands, check_call, common_dtype
from kdaprof.kda.surroundings import functorch_active


def call_traced(
    op: Op,
    x: Operands,
    scale: float | None,
    initial_state: Tensor | None,
    final_state: bool,
    chunk: int,
    path: str,
) -> Result:
    """Run one call inside a trace: the checks become guards, the decision a constant, the path part of the graph.

    Raises: as `kda`. An error ends the trace, and the call is made again outside it, where it is raised.
    """
    shape = check_call(op, x, initial_state, chunk)
    device = x.q.device.type
    # `index` turns a symbolic extent (dynamic=True) into a constant, which a decision needs of K and V, not of T.
    k_dim, v_dim, chunk = index(shape.K), index(shape.V), index(chunk)
    chosen, cannot = _decide_while_tracing(op, path, device, common_dtype(x), k_dim, v_dim, chunk)
    if cannot is not None:
        raise UnavailableError(cannot)  # here, not in there: the tracer lets an error of the user's code through
    run = runner(chosen, traced=True, as_operator=True)
    scale = k_dim**-0.5 if scale is None else scale
    return run(x, scale=scale, initial_state=initial_state, final_state=final_state, chunk=chunk)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _decide_while_tracing(
    op: Op, path: str, device_type: str, dtype: torch.dtype, k_dim: int, v_dim: int, chunk: int
) -> tuple[str, str | None]:
    """Runs once a trace and leaves nothing in the graph. Returns the path, and the reason why it cannot run."""
    query = GateQuery(
        op=op,
        asked=path,
        device_type=device_type,
        dtype=dtype,
        k_dim=k_dim,
        v_dim=v_dim,
        chunk=chunk,
        traced=True,
        functorch=functorch_active(),
    )
    try:
        return _decide_and_note(query), None
    except UnavailableError as error:
        return path, str(error)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _decide_and_note(query: GateQuery) -> str:
    """Apart, so that the compiler keeps out of the gate also where an error has ended the trace around it."""
    decision = decide(query)
    announce(decision)
    note_traced(tally_of(decision))
    return decision.chosen
