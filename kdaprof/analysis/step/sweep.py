"""A run as a sweep: which sizes its command swept, and what follows from its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdaprof.analysis.step.fit import Fit, Point, Turn, fits_of, points_of, turns_of
from kdaprof.runs.cells import SWEPT_AXES
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.results import RunResults


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Points, lines and turns over the swept axes (`over`, as in cell ids), and the steps that are no points."""

    over: tuple[str, ...]
    points: tuple[Point, ...]
    fits: tuple[Fit, ...]
    turns: tuple[Turn, ...]
    missing: tuple[CellRecord, ...]


def sweep_of(record: RunRecord, results: RunResults) -> Sweep | None:
    """The sweep that a run is; None for a run of another command."""
    over = swept_axes(record.command)
    if not over:
        return None
    points = points_of(record, results, over)
    return Sweep(
        over=over,
        points=points,
        fits=fits_of(record.run, points),
        turns=turns_of(points),
        missing=not_measured(record),
    )


def not_measured(record: RunRecord) -> tuple[CellRecord, ...]:
    """The steps of a sweep that are no points: they failed, cannot run here, or were not reached."""
    return tuple(cell for cell in record.cells if cell.key.phase == "step" and cell.status != "ok")


def swept_axes(command: Sequence[str]) -> tuple[str, ...]:
    """`kdaprof sweep --over batch=1,2 --over=seq=128,256` → `("B", "T")`; () for another command."""
    if tuple(command[:2]) != ("kdaprof", "sweep"):
        return ()
    told = []
    for word, after in zip(command, (*command[1:], ""), strict=True):
        text = after if word == "--over" else word.removeprefix("--over=")
        axis = SWEPT_AXES.get(text.partition("=")[0])
        if word.startswith("--over") and axis is not None:
            told.append(axis)
    return tuple(told)
