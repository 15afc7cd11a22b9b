"""The zoomable timeline: one profiled repeat of each call, host above, device below, gaps by class."""

from __future__ import annotations

from typing import Any

from kdaprof.report.html.lanes import MOST_EVENTS, timeline_data
from kdaprof.report.html.model import Section, Subject, TimelineChart
from kdaprof.runs.units import format_ns


def timeline(subject: Subject) -> Section | None:
    """Each call gets its part of `subject.events`; None where that is 0, or where no recording holds device work."""
    chosen: dict[str, Any] = {}
    kinds = ("profiled-full", "profiled-cuda")
    wanted = []
    for cell in subject.scene.cells:
        recorded = [kind for kind in kinds if (cell.record.id, kind) in subject.raw.timelines]
        if recorded and cell.key.mode == "eager":
            wanted.append((cell, recorded[0]))
    if not wanted or not subject.events:
        return None
    most = min(MOST_EVENTS, subject.events // len(wanted))
    said = []
    for cell, kind in wanted:
        data = timeline_data(subject.raw.timelines[cell.record.id, kind], most)
        if data is None:
            continue
        name = subject.scene.naming.name(cell.key)
        chosen[name] = data | {"note": _note(cell.fact("wall_ns"), data, kind)}
        said.append(name)
    if not chosen:
        return None
    lead = "One profiled repeat. The profiler slows the host: read order and gaps here, and times in the tables."
    title = "Host, device and gaps, event by event"
    says = "Zoomable timeline of " + ", ".join(said)
    block = TimelineChart("timeline-chart", title, says, tuple(said), chosen, 380)
    return Section("timeline", "Timeline of one call", (block,), lead)


def _note(wall: Any, data: dict[str, Any], kind: str) -> str:
    what = "CPU + CUDA recorded" if kind == "profiled-full" else "CUDA recorded"
    text = f"Repeat {data['repeat'] + 1} of {data['repeats']}, {what}: {format_ns(data['wall'])}"
    if wall is not None and wall.value:
        text += f", {data['wall'] / wall.value:.2g} × the {format_ns(wall.value)} of an unprofiled call"
    if data["left_out"] > 0:
        text += f". {data['left_out']:,} inner or short events are not drawn"
    return f"{text}."
