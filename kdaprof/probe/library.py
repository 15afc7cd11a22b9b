"""What a probe asks about a workload that is one call of a library: its gate, and what is known before it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from kdaprof.probe.dispatch.seen import OperatorsSeen
from kdaprof.runs.cells import CellKey
from kdaprof.runs.record import GateObservation
from kdaprof.workloads.library import LIBRARIES


def observe_choice(key: CellKey, call: Callable[[], None]) -> GateObservation | None:
    """Run `call`, which calls the cell once; the path that the library chose, by the operators that ran.

    The library has no record of its decisions: the operator that it hands a call to is the decision.
    """
    with OperatorsSeen() as seen:
        call()
    path = LIBRARIES[key.workload].chosen(key, seen.names)
    if path is None:
        return None
    backward = any("backward" in name for name in seen.names)
    return GateObservation(
        calls=1,
        chosen=path,
        forward={path: 1},
        backward={path: 1} if backward else {},
    )


def settings_kept(workload: str) -> AbstractContextManager[None]:
    """What calls of this workload change in their library is put back afterwards."""
    return LIBRARIES[workload].settings() if workload in LIBRARIES else nullcontext()


def tokens_of(key: CellKey) -> int | None:
    """Tokens of a call; None for a workload that has none."""
    sizes = dict(key.shape)
    return sizes["B"] * sizes["T"] if {"B", "T"} <= sizes.keys() else None
