"""What a capture into a CUDA graph would give, as far as a trace alone can tell: a range, and what is in the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.trace.apis import Api
from kdaprof.analysis.trace.context import Context, DeviceView
from kdaprof.analysis.trace.idle import CLASSES, Gaps
from kdaprof.timeline.columns import COPY_KINDS, Index

GRAPH_GAP_LOW_NS = 250
GRAPH_GAP_HIGH_NS = 1_500
"""Wall beyond busy for each event of a replayed graph, measured on an H200: 0.26 and 0.42 µs between nodes in
traces; 0.56, 0.59, 0.99, 1.3 µs a kernel in unprofiled replays of 1,379 to 236 kernels."""

GRAPH_FIXED_HIGH_NS = 40_000
"""Launch of the graph, arrival, and the closing synchronise, at most; once a step."""

LONG_HOST_WORK_NS = 1_000_000
"""A gap in which the host did untraced work for this long (data loading, logging) is no launch overhead."""

MIN_GRAPH_GAPS = 50
"""So many gaps inside graphs in the trace itself replace the low figure measured elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """An estimate, `derived`: `low_ns` … `high_ns` for what takes `now_ns` in this (profiled) trace.

    Busy time, waits of the device and long host work stay; dispatch, launch calls and their latency go, and each
    event costs a gap inside the graph.

    `removed_low`, `removed_high`: share of (now − busy) that would go. `blockers`: what in the window must go
    before a capture can succeed, with counts. `basis`: where the gap per event comes from.
    """

    now_ns: int
    busy_ns: int
    events: int
    low_ns: int
    high_ns: int
    removed_low: float | None
    removed_high: float | None
    basis: str
    blockers: tuple[tuple[str, int], ...]


def counterfactual(context: Context, view: DeviceView) -> Counterfactual | None:
    """The estimate for all that is in view; None when nothing is, or all of it is replayed from graphs already."""
    links = context.links
    rows = view.work.rows
    calls = links.call_of[rows]
    in_graph = (calls >= 0) & ((links.api_of_row[calls] & Api.GRAPH_LAUNCH) != 0)
    if not rows.size or in_graph.all():
        return None
    busy_ns, idle_ns = view.work.coverage.total_ns, view.gaps.split().total_ns
    now_ns = busy_ns + idle_ns
    per_event, basis = _gap_per_event(view.gaps, int(in_graph.sum()))
    kept_ns, long_work = _kept(view.gaps)
    low = busy_ns + kept_ns + per_event * int(rows.size)
    steps = context.step_of[rows]
    replays = max(int(np.unique(steps[steps >= 0]).size), 1)  # a step is captured once and replayed once a step
    high = busy_ns + kept_ns + GRAPH_GAP_HIGH_NS * int(rows.size) + GRAPH_FIXED_HIGH_NS * replays
    low, high = min(low, now_ns), min(high, now_ns)
    overhead = now_ns - busy_ns
    return Counterfactual(
        now_ns=now_ns,
        busy_ns=busy_ns,
        events=int(rows.size),
        low_ns=low,
        high_ns=high,
        removed_low=(now_ns - high) / overhead if overhead else None,
        removed_high=(now_ns - low) / overhead if overhead else None,
        basis=basis,
        blockers=_blockers(context, rows)
        + ((("host work of more than 1 ms between launches", long_work),) if long_work else ()),
    )


def _gap_per_event(gaps: Gaps, in_graph: int) -> tuple[int, str]:
    inside = gaps.classes[CLASSES.index("graph_gap")]
    if int((inside > 0).sum()) >= MIN_GRAPH_GAPS and in_graph:
        own = int(inside.sum()) // in_graph
        if own <= GRAPH_GAP_HIGH_NS:  # longer ones are waits for other streams, not the price of a node
            return own, "gaps inside the graphs of this trace"
    return GRAPH_GAP_LOW_NS, "gaps inside graphs measured on an H200"


def _kept(gaps: Gaps) -> tuple[int, int]:
    """Idle that a capture does not touch: waits, gaps nobody can explain, and long host work; how often the last."""
    split = gaps.split()
    host_other = gaps.classes[CLASSES.index("host_other")]
    long = host_other >= LONG_HOST_WORK_NS
    waits = split.device_wait + split.no_launch_record + split.unclassified
    return waits + int(host_other[long].sum()), int(long.sum())


def _blockers(context: Context, rows: Index) -> tuple[tuple[str, int], ...]:
    """What a capture does not allow, inside the host time of the launches in view."""
    timeline, links = context.timeline, context.links
    calls = links.call_of[rows]
    calls = calls[calls >= 0]
    if not calls.size:
        return ()
    begin, end = int(timeline.start_ns[calls].min()), int(timeline.end_ns[calls].max())
    inside = (timeline.start_ns > begin) & (timeline.start_ns < end)
    found = {
        "synchronise": int((links.synchronises & inside).sum()),
        "allocation by the driver": int((((links.api_of_row & Api.ALLOCATOR) != 0) & inside).sum()),
        "graph instantiation": int((((links.api_of_row & Api.GRAPH_INSTANTIATE) != 0) & inside).sum()),
    }
    copies = rows[np.isin(timeline.kind[rows], COPY_KINDS)]
    to_host = np.array(["DtoH" in name for name in timeline.names], dtype=np.bool_)
    found["copy to the host"] = int(to_host[timeline.name[copies]].sum())
    from_pageable = np.array(["HtoD" in name and "ageable" in name for name in timeline.names], dtype=np.bool_)
    found["copy from pageable memory"] = int(from_pageable[timeline.name[copies]].sum())
    return tuple((what, count) for what, count in found.items() if count)
