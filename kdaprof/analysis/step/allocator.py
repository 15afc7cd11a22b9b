"""A step and the caching allocator: growth that nothing reuses, fragmentation, what an emptied pool costs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from kdaprof.analysis.stats import median
from kdaprof.runs.memory import StepMemory

GROWN_STEPS_MIN = 2
"""Reserved memory that grew behind one step only is a pool that fills; it must have grown behind this many."""
GROWTH_BYTES_MIN = 2 << 20
"""The smallest segment that torch asks of the driver: less than one a window is no growth."""
HELD_SHARE = 0.5
"""From this share of the growth on, it is tensors that are held; below it, blocks that no request fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Reserved memory over the recorded steps: bytes a step, in how many steps it grew, and what holds it.

    `grows`: it crossed both thresholds and was still growing in the last half of the steps.
    """

    bytes_a_step: float
    total_bytes: int
    grown_steps: int
    steps: int
    held_share: float
    grows: bool

    @property
    def held(self) -> bool:
        """Whether tensors hold what grew."""
        return self.held_share >= HELD_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """A step with a warm pool and with one given back to the driver right before: medians of steps in turns, in ns."""

    warm_ns: float
    emptied_ns: float
    n: int
    apart: bool
    """Whether every step of the one was faster than every step of the other."""


def growth_of(memory: StepMemory) -> Growth | None:
    """How the pool grew from the first recorded step to the last; None with fewer than three steps."""
    reserved = memory.reserved_bytes
    if len(reserved) < 3:
        return None
    rises = [max(0, after - before) for before, after in pairwise(reserved)]
    total, grown = reserved[-1] - reserved[0], sum(rise > 0 for rise in rises)
    held = memory.held_bytes[-1] - memory.held_bytes[0]
    late = any(rises[len(rises) // 2 :])
    return Growth(
        bytes_a_step=total / len(rises),
        total_bytes=total,
        grown_steps=grown,
        steps=len(rises),
        held_share=max(0.0, min(1.0, held / total)) if total > 0 else 0.0,
        grows=total >= GROWTH_BYTES_MIN and grown >= GROWN_STEPS_MIN and late,
    )


def fragmentation(memory: StepMemory) -> float | None:
    """Share of the reserved bytes that is free but not in the largest free block; 0 is a pool in one piece."""
    pool = memory.pool
    if pool is None or not pool.reserved_bytes:
        return None
    return (pool.free_bytes - pool.largest_free_bytes) / pool.reserved_bytes


def pools_of(memory: StepMemory) -> Pools | None:
    """The two pools side by side; None where they were not timed."""
    warm, emptied = memory.warm_wall_ns, memory.emptied_wall_ns
    if not warm or not emptied:
        return None
    return Pools(
        warm_ns=median([float(wall) for wall in warm]),
        emptied_ns=median([float(wall) for wall in emptied]),
        n=min(len(warm), len(emptied)),
        apart=max(warm) < min(emptied) or max(emptied) < min(warm),
    )
