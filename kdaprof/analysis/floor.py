"""The floor: no call can be faster than its operations at the card's rate, or its bytes at the card's bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kdaprof.runs.facts import Provenance
from kdaprof.runs.record import Ceiling, Work

COPY = "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """max(FLOPs / rate, bytes / bandwidth) for one byte basis, with both sides and the ceilings used."""

    compute_ns: float
    memory_ns: float
    rate: Ceiling
    bandwidth: Ceiling

    @property
    def ns(self) -> float:
        """The larger of the two."""
        return max(self.compute_ns, self.memory_ns)

    @property
    def bound(self) -> Literal["compute", "memory"]:
        """The side that binds."""
        return "compute" if self.compute_ns > self.memory_ns else "memory"

    @property
    def provenance(self) -> Provenance:
        """`declared` when the ceiling that binds is a declared one."""
        ceiling = self.rate if self.bound == "compute" else self.bandwidth
        return "declared" if ceiling.provenance == "declared" else "derived"


def floor_of(flops: int, moved_bytes: int, rate: Ceiling, bandwidth: Ceiling) -> Floor:
    """The floor of a call; ceilings in FLOP/s and B/s (read + written)."""
    return Floor(
        compute_ns=flops / rate.value * 1e9,
        memory_ns=moved_bytes / bandwidth.value * 1e9,
        rate=rate,
        bandwidth=bandwidth,
    )


def compulsory_floor(work: Work, ceilings: Sequence[Ceiling]) -> Floor | str:
    """The floor on the compulsory basis, from the ceilings that the work names; or which ceiling is not there."""
    named = {ceiling.name: ceiling for ceiling in ceilings if ceiling.value > 0}
    absent = [name for name in (work.rate, COPY) if name not in named]
    if absent:
        return f"no ceiling {' and no ceiling '.join(absent)} in this run"
    return floor_of(work.flops, work.bytes_compulsory, named[work.rate], named[COPY])


def intensity(flops: int, moved_bytes: int) -> float | None:
    """FLOP per byte; None for a call that moves nothing."""
    return flops / moved_bytes if moved_bytes else None
