"""The first witness: what the gate recorded while a cell's first call ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kdaprof.kda.ledger import record
from kdaprof.runs.record import GateObservation


def observe_gate(call: Callable[[], None], *, calls: int = 1, captured_only: bool = False) -> GateObservation:
    """Run `call` and condense the gate's records: forward and backward apart, refusals of the decision taken.

    `chosen` is None when nothing was recorded or calls went different ways; the counts then tell. A replay asks
    no gate: `captured_only` keeps what was recorded inside the capture, the one moment when it was asked.
    """
    with record() as recording:
        call()
    records = tuple(r for r in recording.records if r.captured or not captured_only)
    forward = Counter(r.path for r in records if r.phase == "fwd")
    backward = Counter(r.path for r in records if r.phase == "bwd")
    ways = forward.keys() | backward.keys()
    decision = next((r.decision for r in records if r.decision is not None), None)
    return GateObservation(
        calls=calls,
        chosen=next(iter(ways)) if len(ways) == 1 else None,
        forward=dict(forward),
        backward=dict(backward),
        refused=decision.refused if decision else (),
        traced=any(r.traced for r in records),
    )
