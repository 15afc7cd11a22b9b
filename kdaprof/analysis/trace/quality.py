"""Is the trace good enough to speak? What is wrong with it, counted, and whether it may have a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kdaprof.analysis.trace.context import Context, DeviceView
from kdaprof.timeline.columns import Kind

ORPHAN_SHARE_PARTIAL = 0.01
"""From this share of device events without a launch record on, the trace is partial."""

DROPPED_SHARE_UNFIT = 0.05
"""From this share of records that could not be used on, no verdict is given."""

OUT_OF_ORDER_SHARE_UNFIT = 0.20
"""From this share of device events that began before their launch on, host and device clocks do not agree."""

CLOCK_SLACK_NS = 1_000
"""Host and device clocks agree to about a microsecond: a start this little before its launch is in order."""

Grade = Literal["good", "partial", "unfit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Counts of faults, and what they mean. `unfit` refuses a verdict; every fault has a note.

    `orphans`: device events without a launch record, `orphans_at_head` of them before the first with one ·
    `out_of_order`: device events that began before their launch · `overlapping`: events that overlap another of
    their own stream · `empty_steps`: steps without device events · `repaired`, `dropped`: records of the file.
    """

    verdict: Grade
    device_events: int
    orphans: int
    orphans_at_head: int
    out_of_order: int
    overlapping: int
    empty_steps: int
    repaired: int
    dropped: int
    complete: bool
    notes: tuple[str, ...]


def judge_quality(context: Context, views: Sequence[DeviceView]) -> Quality:
    """Count the faults of a timeline and grade it."""
    timeline, links, source = context.timeline, context.links, context.timeline.source
    rows = np.flatnonzero(timeline.device_mask)
    orphan = links.call_of[rows] < 0
    orphans = int(orphan.sum())
    head = _orphans_at_head(context)
    early = (timeline.start_ns[rows] < timeline.start_ns[links.call_of[rows]] - CLOCK_SLACK_NS) & ~orphan
    overlapping = sum(_same_stream_overlaps(context, view) for view in views)
    empty = _empty_steps(context)
    dropped, repaired = source.counts.dropped_total, source.counts.repaired_total
    notes = list(source.notes)
    notes += [f"{count} records left out: {reason}" for reason, count in source.counts.dropped.items()]
    notes += [f"{count} records repaired: {reason}" for reason, count in source.counts.repaired.items()]
    n = int(rows.size)
    if not n:
        notes.append("no device events: this trace can say nothing about a GPU")
    if n and orphans == n:
        notes.append("no launch records: whether the host or the device was late cannot be told")
    elif orphans:
        notes.append(f"{orphans} of {n} device events have no launch record")
    if head:
        notes.append(f"{head} device events come before the first launch: the head of the recording is missing")
    if early.any():
        notes.append(f"{int(early.sum())} device events began before their launch: clocks disagree")
    if overlapping:
        notes.append(f"{overlapping} device events overlap another of their own stream")
    if empty:
        notes.append(f"{empty} steps have no device events")
    unfit = not n or (
        dropped > DROPPED_SHARE_UNFIT * max(source.counts.kept + dropped, 1)
        or int(early.sum()) > OUT_OF_ORDER_SHARE_UNFIT * n
    )
    flawed = bool(
        not source.complete
        or dropped
        or overlapping
        or empty
        or early.any()
        or (n and orphans > ORPHAN_SHARE_PARTIAL * n)
    )
    return Quality(
        verdict="unfit" if unfit else "partial" if flawed else "good",
        device_events=n,
        orphans=orphans,
        orphans_at_head=head,
        out_of_order=int(early.sum()),
        overlapping=overlapping,
        empty_steps=empty,
        repaired=repaired,
        dropped=dropped,
        complete=source.complete,
        notes=tuple(notes),
    )


def _orphans_at_head(context: Context) -> int:
    """Device events that end before anything in the trace was launched: their launches were lost."""
    timeline, links = context.timeline, context.links
    if not links.launches.size:
        return 0
    first = int(timeline.start_ns[links.launches].min())
    return int((timeline.device_mask & (links.call_of < 0) & (timeline.end_ns <= first)).sum())


def _same_stream_overlaps(context: Context, view: DeviceView) -> int:
    """Events that begin before the previous one of their stream ended; nodes of a graph may, by design."""
    timeline, links = context.timeline, context.links
    rows = view.work.ordered_rows
    found = 0
    for stream in np.unique(timeline.stream[rows]).tolist():
        mine = rows[timeline.stream[rows] == stream]
        if mine.size < 2:
            continue
        reach = np.maximum.accumulate(timeline.end_ns[mine])[:-1]
        call = links.call_of[mine]
        shared = (call[1:] == call[:-1]) & (call[1:] >= 0)
        kernels = timeline.kind[mine[1:]] == Kind.KERNEL
        found += int(((timeline.start_ns[mine[1:]] < reach - CLOCK_SLACK_NS) & ~shared & kernels).sum())
    return found


def _empty_steps(context: Context) -> int:
    n = len(context.steps)
    if not n or not context.timeline.device_mask.any():
        return 0
    used = np.unique(context.step_of[context.timeline.device_mask])
    return n - int((used >= 0).sum())
