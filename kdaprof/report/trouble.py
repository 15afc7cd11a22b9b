"""Cells without a result, and why: each reason once, with all the cells it speaks of."""

from __future__ import annotations

from dataclasses import dataclass

from kdaprof.report.rules import short_list
from kdaprof.report.scene import Scene
from kdaprof.runs.record import CellError, Status


@dataclass(frozen=True, slots=True)
class Trouble:
    """Cells that share a status and a reason."""

    cells: str
    status: Status
    why: str


def troubles(scene: Scene) -> tuple[Trouble, ...]:
    """What was not measured, in the order of the run."""
    groups: dict[tuple[Status, str], list[str]] = {}
    for cell in scene.cells:
        if cell.record.status != "ok":
            key = (cell.record.status, _why(cell.record.status, cell.record.error))
            groups.setdefault(key, []).append(scene.naming.name(cell.key, mode=True))
    return tuple(Trouble(short_list(names), status, why) for (status, why), names in groups.items())


def _why(status: Status, error: CellError | None) -> str:
    if error is None:
        return "not reached"
    # That something is unavailable or skipped is said already; of a failure the type is half of the message.
    return error.text if status in ("unavailable", "skipped") else f"{error.type}: {error.text}"
