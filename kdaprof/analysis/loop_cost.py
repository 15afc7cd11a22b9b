"""What watching a loop costs it: the profiler's own measurement, for the phases that the loop really has."""

from __future__ import annotations

from dataclasses import dataclass

from kdaprof.runs.record import RunRecord
from kdaprof.timeline.loop_ranges import OTHER, WHOLE

STEP_COST, PHASE_COST, STORE_COST = "step_profiler_step", "step_profiler_phase", "step_profiler_store"
"""Names of the costs among the run's: an empty step, each phase in it, and a step's part of what is written to disk."""


@dataclass(frozen=True, slots=True)
class LoopCost:
    """Host time in ns of a step's borders, of one phase's, and of storing a step; how many phases there are.

    Steps are stored twice a minute, between two of them. `store_ns` is their mean, None in a run that is not closed.
    """

    step_ns: float
    phase_ns: float
    phases: int
    store_ns: float | None = None

    @property
    def whole_ns(self) -> float:
        """All that a step pays."""
        return self.step_ns + self.phases * self.phase_ns + (self.store_ns or 0.0)


def loop_cost(run: RunRecord) -> LoopCost | None:
    """The cost of watching the run's loop; None for a run that watched none."""
    costs = {cost.name: cost.ns for cost in run.overhead}
    if not {STEP_COST, PHASE_COST} <= costs.keys():
        return None
    watched = {c.key.phase for c in run.cells if c.observed is not None and c.observed.borders == "loop"}
    return LoopCost(costs[STEP_COST], costs[PHASE_COST], len(watched - {WHOLE, OTHER}), costs.get(STORE_COST))
