"""The launch queue: how long launch calls take, how long events wait behind others, how deep the queue is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.trace.apis import base_name
from kdaprof.analysis.trace.context import Context, DeviceView
from kdaprof.timeline.columns import Index, Int64

DEPTH_POINTS = 60
"""Points of the depth series: enough for a terminal's width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRow:
    """Launch calls of one API: duration of the call on the host, device events it owns, calls a step."""

    api: str
    calls: int
    device_events: int
    total_ns: int
    median_ns: int
    p90_ns: int
    calls_per_step: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """From the return of a launch call to the start of its first event, split in two.

    `queueing`: the stream was still busy with earlier work · `latency`: the rest (arrival, dependencies). Both as
    medians and totals over `launches` with a record. Depth: launches issued and not yet started; `empty_share`
    is the share of the device's span in which nothing was waiting (the host is late); `depth` samples it at
    `depth_ns` (from the first device event on).
    """

    launches: int
    delay_median_ns: int
    queueing_median_ns: int
    queueing_total_ns: int
    latency_median_ns: int
    latency_total_ns: int
    depth_max: int
    depth_mean: float
    empty_share: float
    depth_ns: tuple[int, ...]
    depth: tuple[int, ...]


def api_table(context: Context, view: DeviceView) -> tuple[ApiRow, ...]:
    """Launch calls in scope by API, most calls first: those that own an event in view, and those without any."""
    timeline, links = context.timeline, context.links
    calls = launches_in_view(context, view)
    owned = np.bincount(_positions(links.call_of[view.work.rows], calls), minlength=calls.size + 1)[: calls.size]
    lengths = timeline.end_ns[calls] - timeline.start_ns[calls]
    apis = {name: base_name(timeline.names[name]) for name in np.unique(timeline.name[calls]).tolist()}
    n_steps = int((np.unique(context.step_of[calls]) >= 0).sum())
    table = []
    for api in sorted(set(apis.values())):
        mine = np.isin(timeline.name[calls], [name for name, text in apis.items() if text == api])
        table.append(
            ApiRow(
                api=api,
                calls=int(mine.sum()),
                device_events=int(owned[mine].sum()),
                total_ns=int(lengths[mine].sum()),
                median_ns=int(np.median(lengths[mine])),
                p90_ns=int(np.percentile(lengths[mine], 90)),
                calls_per_step=int(mine.sum()) / n_steps if n_steps else None,
            )
        )
    return tuple(sorted(table, key=lambda row: (-row.calls, row.api)))


def launches_in_view(context: Context, view: DeviceView) -> Index:
    """Launch calls that own events in view; with one device in full view also those that own none."""
    timeline, links = context.timeline, context.links
    owning = np.unique(links.call_of[view.work.rows])
    owning = owning[owning >= 0]
    whole = len(timeline.devices()) == 1 and view.work.rows.size == int(timeline.device_mask.sum())
    if whole:
        return links.launches
    ordered: Index = owning[np.argsort(timeline.start_ns[owning], kind="stable")]
    return ordered


def queue_of(context: Context, view: DeviceView) -> Queue | None:
    """The queue of one device; None without launch records."""
    timeline, links = context.timeline, context.links
    rows = view.work.ordered_rows
    rows = rows[links.call_of[rows] >= 0]
    if not rows.size:
        return None
    call = links.call_of[rows]
    first = np.sort(np.unique(call, return_index=True)[1])  # a graph launch waits until its first node starts
    rows, call = rows[first], call[first]
    start, returned = timeline.start_ns[rows], timeline.end_ns[call]
    delay = np.maximum(start - returned, 0)
    free = _stream_free_ns(context, view)[rows]
    queueing = np.clip(np.maximum(np.minimum(start, free), returned) - returned, 0, delay)
    times, depth = _depth(timeline.start_ns[call], start)
    span = np.diff(times, append=times[-1:])
    total = max(int(span.sum()), 1)
    at = np.linspace(int(times[0]), int(times[-1]), DEPTH_POINTS).astype(np.int64)
    sampled = depth[np.searchsorted(times, at, side="right") - 1]
    return Queue(
        launches=int(rows.size),
        delay_median_ns=int(np.median(delay)),
        queueing_median_ns=int(np.median(queueing)),
        queueing_total_ns=int(queueing.sum()),
        latency_median_ns=int(np.median(delay - queueing)),
        latency_total_ns=int((delay - queueing).sum()),
        depth_max=int(depth.max()),
        depth_mean=float((depth * span).sum() / total),
        empty_share=float(span[depth == 0].sum() / total),
        depth_ns=tuple(int(time - times[0]) for time in at.tolist()),
        depth=tuple(int(value) for value in sampled.tolist()),
    )


def _stream_free_ns(context: Context, view: DeviceView) -> Int64:
    """For each event [n] when the earlier events of its stream were done; very early for a stream's first."""
    timeline = context.timeline
    rows = view.work.ordered_rows
    free = np.full(len(timeline), np.iinfo(np.int64).min, dtype=np.int64)
    for stream in np.unique(timeline.stream[rows]).tolist():
        mine = rows[timeline.stream[rows] == stream]
        free[mine[1:]] = np.maximum.accumulate(timeline.end_ns[mine])[:-1]
    return free


def _depth(issued: Int64, started: Int64) -> tuple[Int64, Int64]:
    """Times and the number of launches begun but not started from then on; starts before their call count as 0."""
    started = np.maximum(started, issued)
    times = np.concatenate((issued, started))
    steps = np.concatenate((np.ones(issued.size, dtype=np.int64), np.full(started.size, -1, dtype=np.int64)))
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(steps[order])


def _positions(call_of: Index, calls: Index) -> Index:
    """Position in `calls` of each event's call; `len(calls)` for those without one."""
    order = np.argsort(calls, kind="stable")
    if not calls.size:
        return np.zeros(call_of.size, dtype=np.intp)
    place = np.minimum(np.searchsorted(calls[order], call_of), calls.size - 1)
    return np.where(calls[order[place]] == call_of, order[place], calls.size)
