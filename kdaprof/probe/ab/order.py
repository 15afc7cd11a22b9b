"""What an experiment is asked to do, and everything with an effect that it needs, passed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kdaprof.analysis.ab.contract import Contract, Shape
from kdaprof.analysis.ab.evidence import ShapeEvidence
from kdaprof.analysis.ab.stages import LoadRun
from kdaprof.probe.ab.blocks import Progress
from kdaprof.probe.ab.machine import Machine
from kdaprof.probe.ab.process import RunCommand
from kdaprof.probe.ab.target import Asker


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One experiment. `folder` is the contract's: its relative paths count from there."""

    contract: Contract
    folder: Path
    base: str
    cand: str
    out: Path
    store: Path
    command: tuple[str, ...]

    @property
    def sides(self) -> tuple[str, str]:
        """Base and candidate, as asked for."""
        return self.base, self.cand


class ProbeShape(Protocol):
    """Probes one shape of kind `paths`. The seam that tests replace."""

    def __call__(self, order: Order, shape: Shape) -> ShapeEvidence:
        """What the probe saw. Errors: UsageError, UnavailableError, KeyboardInterrupt."""
        ...


Worker = Callable[[Mapping[str, str], Path, float], AbstractContextManager[Asker]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """Everything with an effect that an experiment needs."""

    machine: Machine
    run: RunCommand
    worker: Worker
    probe: ProbeShape
    load: LoadRun
    unix_ns: Callable[[], int]
    progress: Progress
