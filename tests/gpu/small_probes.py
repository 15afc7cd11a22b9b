"""What the GPU tests of peers and of KDA's relatives share: an effort of seconds, and the rules that a cell met."""

from __future__ import annotations

from kdaprof.probe.plan import Effort
from kdaprof.runs.results import CellResult

EFFORT = Effort(
    rounds=2, rounds_most=1, samples=3, warmup=2, events=2, burst=3, allocator=2, profiled=3, profiled_full=2,
    util_seconds=0,
)  # fmt: skip


def rules(result: CellResult) -> set[str]:
    """Rules that refuse any figure of the cell."""
    return {reason.rule for fact in result.facts.values() for reason in fact.reasons}
