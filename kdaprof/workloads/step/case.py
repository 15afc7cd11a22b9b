"""What can be timed as a step: the built-in training step, or a user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from kdaprof.workloads.step.watched import OpWatch

Outputs = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a step, under its name."""

    name: str
    run: Callable[[], None]


class PhasedCase(Protocol):
    """A step and its parts. `run()` does what the runs of `phases` do, in their order."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The parts, in order."""
        ...

    steps_done: int
    watch: OpWatch
    run: Callable[[], None]
    """One step."""

    def prepare(self, index: int) -> None:
        """Everything between two steps that the clock must not see."""
        ...
