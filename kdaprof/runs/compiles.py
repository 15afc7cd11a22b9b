"""What ran in a step beside the step itself: compilations, autotuning, library handles, memory asked of the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cause = Literal["triton", "triton-cached", "torch.compile", "autotune", "library"]
"""`triton-cached`: a kernel that Triton read from its cache on disk instead of compiling it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileEvent:
    """One compilation or tuning: from `start_ns` (the clock of the samples) for `ns`. `count` is configurations tried
    for an autotuner, else 1. Events of one step may overlap: threads compile side by side, a tuning compiles.
    """

    cause: Cause
    name: str
    start_ns: int
    ns: int
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStep:
    """A step during which something of the kind ran, or the first one. `index` is that of its unprofiled sample.

    `fresh`: the first step of a process of its own with empty caches. `driver_allocs` and `reserved_growth_bytes` are
    memory asked of the driver in it; None where it was not read.
    """

    fresh: bool
    index: int
    start_ns: int
    wall_ns: int
    events: tuple[CompileEvent, ...] = ()
    driver_allocs: int | None = None
    reserved_growth_bytes: int | None = None
