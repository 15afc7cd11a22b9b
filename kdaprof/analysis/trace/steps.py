"""Step by step: device time, idle by class, launches, synchronisations and allocations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.intervals import union_ns
from kdaprof.analysis.trace.apis import Api
from kdaprof.analysis.trace.context import NO_STEP, Context, DeviceView
from kdaprof.analysis.trace.idle import NO_EVENT, Cause, IdleSplit
from kdaprof.timeline.columns import COPY_KINDS, Bool, Index, Int32, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One step on one device. Device events belong to the step in which they were launched.

    `span_ns = busy_ns + idle_ns`: device time from the step's first event to its last, other steps' events left
    out · `lead`: the gap between the previous step's last event and this step's first, by class (data loading
    shows here) · `host_ns`: the range on the host · `partial`: cut off by the recording, or without device
    events · `copies_hidden_ns`: time in which kernels and copies ran at once.
    """

    name: str
    index: int | None
    device: int
    partial: bool
    start_ns: int
    host_ns: int
    span_ns: int
    busy_ns: int
    kernel_busy_ns: int
    copy_busy_ns: int
    idle: IdleSplit
    lead: IdleSplit
    drained_by_sync_ns: int
    launches: int
    device_events: int
    synchronisations: int
    allocations: int

    @property
    def idle_ns(self) -> int:
        """Idle between the step's own events."""
        return self.idle.total_ns


def step_table(context: Context, view: DeviceView, which: range | None = None) -> tuple[StepRow, ...]:
    """All steps (or positions `which`), in order of time; partial ones are marked, never dropped."""
    timeline, links, steps = context.timeline, context.links, context.steps
    n = len(steps)
    rows = view.work.ordered_rows
    gaps = view.gaps
    after = context.step_of[gaps.following]
    before = np.where(gaps.previous == NO_EVENT, NO_STEP, context.step_of[gaps.previous])
    events = groups(context.step_of[rows], n)
    inside = groups(np.where(before == after, after, NO_STEP), n)
    lead = groups(np.where(before != after, after, NO_STEP), n)
    calls = links.launches
    if len(timeline.devices()) > 1:  # a step's launches for other devices are not this device's
        calls = np.unique(links.call_of[rows[links.call_of[rows] >= 0]])
    launches = np.bincount(context.step_of[calls] + 1, minlength=n + 1)
    waits = np.bincount(context.step_of[links.synchronises] + 1, minlength=n + 1)
    allocator = (links.api_of_row & Api.ALLOCATOR) != 0
    allocations = np.bincount(context.step_of[allocator] + 1, minlength=n + 1)
    recorded = _recorded(context)
    table = []
    for step in range(n) if which is None else which:
        own = rows[events[step]]
        kinds = timeline.kind[own]
        begin, end = context.step_window(step)
        busy_ns = int(view.work.coverage.added_ns[events[step]].sum())
        idle = gaps.split(inside[step])
        number = steps.numbers[step]
        table.append(
            StepRow(
                name=timeline.name_of(int(steps.rows[step])),
                index=number if number is not None else step,
                device=view.device,
                partial=begin < recorded[0] or end > recorded[1] or not own.size,
                start_ns=begin,
                host_ns=end - begin,
                span_ns=busy_ns + idle.total_ns,
                busy_ns=busy_ns,
                kernel_busy_ns=_busy(context, own, kinds == Kind.KERNEL),
                copy_busy_ns=_busy(context, own, np.isin(kinds, COPY_KINDS)),
                idle=idle,
                lead=gaps.split(lead[step]),
                drained_by_sync_ns=gaps.caused_ns(Cause.DRAINED_BY_SYNC, inside[step]),
                launches=int(launches[step + 1]),
                device_events=int(own.size),
                synchronisations=int(waits[step + 1]),
                allocations=int(allocations[step + 1]),
            )
        )
    return tuple(table)


def groups(of: Int32, n: int) -> list[Index]:
    """For each of `n` numbers the positions in `of` that carry it, ascending."""
    order = np.argsort(of, kind="stable")
    borders = np.searchsorted(of[order], np.arange(n + 1))
    return [order[borders[number] : borders[number + 1]] for number in range(n)]


def _recorded(context: Context) -> tuple[int, int]:
    """What the recording covers: its own window where it says so, else its first start and last end."""
    timeline = context.timeline
    real = timeline.of_kind(Kind.TRACE)
    if not real.any():
        real = ~timeline.of_kind(Kind.ANNOTATION, Kind.GPU_ANNOTATION, Kind.PYTHON)
        real[context.steps.rows] = True
    return int(timeline.start_ns[real].min()), int(timeline.end_ns[real].max())


def _busy(context: Context, rows: Index, which: Bool) -> int:
    chosen = rows[which]
    return union_ns(context.timeline.start_ns[chosen], context.timeline.end_ns[chosen])
