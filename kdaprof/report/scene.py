"""All that a report looks at, gathered once."""

from __future__ import annotations

from dataclasses import dataclass

from kdaprof.report.pairs import Cell, Naming, Pair
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import RunResults


@dataclass(frozen=True, slots=True)
class Scene:
    """A run with its cells paired and named."""

    record: RunRecord
    results: RunResults
    cells: tuple[Cell, ...]
    pairs: tuple[Pair, ...]
    naming: Naming
