"""Findings about capturing: what broke it, and whether the copies of inputs eat what it gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdaprof.analysis.findings.figures import name_of, quoted
from kdaprof.analysis.view import CellView
from kdaprof.runs.results import Finding
from kdaprof.runs.units import format_ns

_HINT = (
    "Move what synchronises or depends on data out of the call: .item(), shapes from values, indices built on the host."
)


def capture_failed(views: Sequence[CellView]) -> Iterator[Finding]:
    """The operation and the line that broke a capture."""
    for view in views:
        capture = view.cell.observed.capture if view.cell.observed else None
        if capture is None or capture.captured:
            continue
        place = f" at {capture.where}" if capture.where else ""
        error = f": {capture.error}" if capture.error else ""
        yield Finding(
            id="capture-failed",
            severity="warn",
            cell=view.cell.id,
            text=f"{name_of(view)}: {capture.operation or 'an operation'}{place} broke the capture{error}",
            evidence={"operation": capture.operation, "where": capture.where, "error": capture.error},
            threshold={"captured": True},
            next=capture.hint or _HINT,
        )


def input_copies(views: Sequence[CellView]) -> Iterator[Finding]:
    """Replaying and copying inputs into the static buffers takes as long as the eager call."""
    by_id = {view.cell.id: view for view in views}
    for view in views:
        eager = by_id.get(view.cell.key.sibling(mode="eager").id)
        if view.cell.key.mode != "graph" or eager is None:
            continue
        wall, replay = quoted(eager.facts, "wall_ns"), quoted(view.facts, "wall_ns")
        copy = quoted(view.facts, "input_copy_ns")
        if wall is None or replay is None or copy is None or replay + copy < wall:
            continue
        yield Finding(
            id="graph-copies-eat-gain",
            severity="warn",
            cell=view.cell.id,
            text=(
                f"{name_of(view)}: replay {format_ns(replay)} + input copies {format_ns(copy)} is no less than the "
                f"eager call's {format_ns(wall)}"
            ),
            evidence={"graph_wall_ns": replay, "input_copy_ns": copy, "wall_ns": wall},
            threshold={"sum_below_ns": wall},
            next="Let the producer write into the graph's static buffers, or capture producer and call together.",
        )
