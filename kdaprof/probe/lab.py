"""What a probe reaches for outside its own code, passed in: processes, instruments, conditions, environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kdaprof.probe.bench import Bench
from kdaprof.probe.child import Spawn
from kdaprof.runs.conditions import ConditionsSnapshot
from kdaprof.runs.environment import Environment, Secrets
from kdaprof.runs.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """The seams of a session; `kdaprof.probe.real.real_lab` gives the real ones."""

    bench: Bench
    spawn: Spawn
    snapshot: Callable[[bool], ConditionsSnapshot]
    """Conditions now; True asks for the careful one, which watches the card for a second."""
    environment: Callable[[], Environment]
    secrets: Callable[[], Secrets]
    progress: Progress
