"""What kdaprof's own instruments cost here, as the run stores it."""

from __future__ import annotations

from kdaprof.instruments.overhead import own_overhead
from kdaprof.probe.bench import Bench
from kdaprof.runs.record import OwnCost


def own_costs(bench: Bench) -> tuple[OwnCost, ...]:
    """Host time of one use of each instrument that is there."""
    items = own_overhead(
        clock=bench.clock,
        device=bench.device,
        allocator=bench.allocator,
        ranges=bench.ranges,
        sensor=bench.sensor,
    )
    return tuple(OwnCost(name=i.name, ns=i.ns_per_call, n=i.n) for i in items if i.ns_per_call is not None)
