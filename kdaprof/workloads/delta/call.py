"""KDA's relatives as calls: their inputs, their op on each path, and what every path is checked against."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from kdaprof.errors import UnavailableError
from kdaprof.kda import gdn2, kda
from kdaprof.kda.decision import Decision
from kdaprof.kda.ledger import note_forward, tally_of
from kdaprof.kda.peers.calls import peer_op
from kdaprof.kda.runners import watch_backward
from kdaprof.kda.shapes import dtype_name
from kdaprof.runs.cells import PEER_PATHS, CellKey
from kdaprof.workloads.contexts import Op, as_function
from kdaprof.workloads.delta.facts import DELTA, set_bytes
from kdaprof.workloads.delta.reference import recurrence
from kdaprof.workloads.inputs import Drawer, InputSpec
from kdaprof.workloads.tensors import NamedInputs

__all__ = ["DELTA", "delta_inputs", "delta_op", "recurrence", "set_bytes"]


def delta_inputs(workload: str, spec: InputSpec, index: int) -> NamedInputs:
    """Set number `index` at KDA's operating point: q and k of length 1, g and g_atk decays, the others gates."""
    drawer = Drawer(spec, index)
    extents = {"heads": drawer.heads, "keys": drawer.keys, "values": drawer.values}
    draws = {"q": drawer.unit, "k": drawer.unit, "v": drawer.normal, "g": drawer.decay, "g_atk": drawer.decay}
    named = {
        name: drawer.place(draws.get(name, drawer.gate)(extents[extent])) for name, extent in DELTA[workload].arguments
    }
    return NamedInputs(workload, named, drawer.place(drawer.normal(drawer.values), grad=False))


def delta_op(key: CellKey, device: str, *, trains: bool) -> Op:
    """The op of `key.workload` on `key.path`.

    Ours are those of KDA's general form: a decay a head is one for all its key channels.
    Errors: UnavailableError, now or in the first call, where that path cannot compute this op here.
    """
    path, chunk = key.path, key.size("C")
    if path not in DELTA[key.workload].paths:
        raise UnavailableError(f"path {path!r} does not compute {key.workload}")
    if path in PEER_PATHS:
        return as_function(peer_op(path, device, op=key.workload, context=key.context, trains=trains))
    if key.workload == "gdn":
        return lambda q, k, v, g, beta: kda(q, k, v, g[..., None].expand_as(k), beta, chunk=chunk, path=path)[0]
    if key.workload == "gdn2":
        return lambda *args: gdn2(*args, chunk=chunk, path=path)[0]
    return _counted_recurrence(key)


_SEQUENTIAL: Final = 1
"""Tokens that the recurrence takes at once."""


def _counted_recurrence(key: CellKey) -> Op:
    """The definition as a path: the ledger counts its calls as it does those of the gate's paths."""

    def call(*args: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return recurrence(key.workload, *args)
        tally = tally_of(
            Decision(
                op=key.workload,
                asked=key.path,
                chosen=key.path,
                refused=(),
                device=args[0].device.type,
                dtype=dtype_name(args[0].dtype),
                k_dim=args[0].shape[-1],
                v_dim=args[2].shape[-1],
                chunk=_SEQUENTIAL,
                traced=False,
            )
        )
        note_forward(tally)
        o = recurrence(key.workload, *args)
        watch_backward(tally, (o, None))
        return o

    return call
