"""Findings about the host: how much of a call the GPU waits for it, and what capturing the call gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kdaprof.analysis.findings.bound import Bound, bound_of
from kdaprof.analysis.findings.figures import name_of, quoted, times
from kdaprof.analysis.trace.bound import IDLE_SHARE_GPU, SHARE_OF_IDLE
from kdaprof.analysis.view import CellView
from kdaprof.runs.facts import Fact
from kdaprof.runs.results import Finding, Scalar
from kdaprof.runs.units import format_fraction, format_ns

# Above this the wait is a warning; from IDLE_SHARE_GPU up to it, a note.
HOST_BOUND_WARN = 0.50
QUEUE_HOST_SHARE_MIN = 0.95
INFLATION_NOTE = 1.20

_HIDDEN_NEXT = "Leave it: less host time here takes nothing off the step, whose wall is the GPU's work."
_MOSTLY = {
    "host": ", mostly for the host",
    "sync": ", mostly because the host had waited for it",
    "device_wait": ", mostly for launches in flight and its own order of work",
    "mixed": ", for several causes",
}


def host_bound(views: Sequence[CellView]) -> Iterator[Finding]:
    """The GPU waits for more than 15 % of a call, with what the measured capture makes of it."""
    by_id = {view.cell.id: view for view in views}
    for view in _eager(views):
        bound, facts = bound_of(view.facts), view.facts
        wall, busy = quoted(facts, "wall_ns"), quoted(facts, "gpu_busy_ns")
        if bound.kind in ("gpu", "unknown") or bound.share is None or wall is None or busy is None:
            continue
        graph = by_id.get(view.cell.key.sibling(mode="graph").id)
        launches = quoted(facts, "launches")
        numbers: dict[str, Scalar] = {
            "host_bound": bound.share,
            "wall_ns": wall,
            "gpu_busy_ns": busy,
            "launches": launches,
            **{f"idle_{name}_ns": value for name, value in bound.classes.items() if value},
            **_capture_numbers(facts, graph),
        }
        issued = f" for {launches:,.0f} launches" if launches else ""
        waits = f"the GPU waits {format_fraction(bound.share)} of a call{_MOSTLY.get(bound.kind, '')}"
        hidden = _hidden_in(view, by_id)
        lies = "; measured by itself: in the whole step, which the GPU bounds, the host runs ahead" if hidden else ""
        yield Finding(
            id="sync-bound" if bound.kind == "sync" else "host-bound",
            severity="warn" if bound.share >= HOST_BOUND_WARN and hidden is None else "info",
            cell=view.cell.id,
            text=(
                f"{name_of(view)}: {waits}: wall {format_ns(wall)}, GPU busy {format_ns(busy)}{issued}{_largest(bound)}"
                f"{lies}"
            ),
            evidence=numbers if hidden is None else {**numbers, "step_host_bound": hidden.share},
            threshold={"idle_share_max": IDLE_SHARE_GPU, "cause_share_min": SHARE_OF_IDLE},
            next=_next(bound, view, graph) if hidden is None else _HIDDEN_NEXT,
        )


def _hidden_in(view: CellView, by_id: Mapping[str, CellView]) -> Bound | None:
    """What bounds the step that this is a phase of, where that is the GPU: then the host's wait here costs nothing."""
    key = view.cell.key
    whole = by_id.get(key.sibling(phase="step").id) if key.phase != "step" else None
    if whole is None or quoted(whole.facts, "wall_ns") is None:
        return None
    bound = bound_of(whole.facts)
    return bound if bound.kind == "gpu" else None


def _largest(bound: Bound) -> str:
    top = bound.largest()
    return f"; most of the idle is {top[0].replace('_', ' ')} ({format_ns(top[1])})" if top and top[1] else ""


def _capture_numbers(facts: Mapping[str, Fact], graph: CellView | None) -> dict[str, Scalar]:
    replayed = graph.facts if graph is not None else {}
    numbers = {
        "graph_wall_ns": quoted(replayed, "wall_ns"),
        "graph_removed": quoted(facts, "graph_removed"),
        "input_copy_ns": quoted(replayed, "input_copy_ns"),
        "floor_ns": quoted(facts, "floor_ns"),
    }
    # What may not be quoted was measured all the same: "unknown" would be wrong, its value even more so.
    return {name: value for name, value in numbers.items() if value is not None}


def _next(bound: Bound, view: CellView, graph: CellView | None) -> str:
    if bound.kind == "sync":
        return "Remove the synchronising calls (.item(), .cpu(), copies from pageable memory) from the call first."
    capture = graph.cell.observed.capture if graph is not None and graph.cell.observed else None
    if capture is not None and not capture.captured:
        return "A CUDA Graph would remove this wait, but the capture failed: see the finding capture-failed."
    replay = quoted(graph.facts, "wall_ns") if graph is not None else None
    if replay is None:
        return "Capture the call in a CUDA Graph; measure what it gives with `--modes eager,graph`."
    wall, busy = quoted(view.facts, "wall_ns"), quoted(view.facts, "gpu_busy_ns")
    floor, copy = quoted(view.facts, "floor_ns"), quoted(graph.facts, "input_copy_ns") if graph else None
    steps = [("eager", wall), ("graph", replay), ("busy", busy), ("floor", floor)]
    chain = " → ".join(f"{name} {format_ns(value)}" for name, value in steps if value is not None)
    removed = quoted(view.facts, "graph_removed")
    gain = f", {format_fraction(removed)} of the launch overhead gone" if removed is not None else ""
    inputs = f"; copying new inputs costs {format_ns(copy)} more" if copy is not None else ""
    return f"Capture the call in a CUDA Graph. Measured here: {chain}{gain}{inputs}."


def queue_full(views: Sequence[CellView]) -> Iterator[Finding]:
    """The host is held back by a full launch queue: host_ns measures the GPU, not the issuing."""
    for view in _eager(views):
        wall, host = quoted(view.facts, "wall_ns"), quoted(view.facts, "host_ns")
        share = bound_of(view.facts).share
        if wall is None or host is None or share is None:
            continue
        if host < QUEUE_HOST_SHARE_MIN * wall or share >= IDLE_SHARE_GPU:
            continue
        yield Finding(
            id="queue-full",
            severity="info",
            cell=view.cell.id,
            text=(
                f"{name_of(view)}: host {format_ns(host)} is {format_fraction(host / wall)} of wall while the GPU is "
                f"busy {format_fraction(1 - share)} of it: the launch queue is full or the call waits, so host time is "
                "GPU time"
            ),
            evidence={"host_ns": host, "wall_ns": wall, "host_bound": share},
            threshold={"host_share_min": QUEUE_HOST_SHARE_MIN, "idle_share_max": IDLE_SHARE_GPU},
            next="Do not read host_ns as the cost of issuing here; the GPU bounds this call.",
        )


def inflation(views: Sequence[CellView]) -> Iterator[Finding]:
    """The profiler slows the call: its walls are not the user's."""
    for view in _eager(views):
        factor = quoted(view.facts, "inflation")
        if factor is None or factor < INFLATION_NOTE:
            continue
        yield Finding(
            id="profiler-inflation",
            severity="info",
            cell=view.cell.id,
            text=f"{name_of(view)}: a call takes {times(factor)} its wall while CUDA activity is recorded",
            evidence={"inflation": factor},
            threshold={"inflation_note": INFLATION_NOTE},
            next="Take wall and host from the unprofiled repeats, as here, and only busy from the trace.",
        )


def _eager(views: Sequence[CellView]) -> Iterator[CellView]:
    return (view for view in views if view.cell.key.mode == "eager")
