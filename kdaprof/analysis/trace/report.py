"""The analysis of one trace, put together: what `kdaprof analyze` prints and writes is made of this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.trace.annotations import STEP_NAME
from kdaprof.analysis.trace.bound import decide
from kdaprof.analysis.trace.busy import busy_of, device_rows
from kdaprof.analysis.trace.context import NO_STEP, Context, DeviceView, Steps, device_view, make_context, steps_of
from kdaprof.analysis.trace.counterfactual import counterfactual
from kdaprof.analysis.trace.devices import DeviceReport, TraceReport
from kdaprof.analysis.trace.findings import trace_findings
from kdaprof.analysis.trace.idle import NO_EVENT, Cause, Gaps, IdleSplit
from kdaprof.analysis.trace.launches import kernel_rows
from kdaprof.analysis.trace.operators import module_table, operator_table
from kdaprof.analysis.trace.paths import path_table, tensor_shapes
from kdaprof.analysis.trace.phases import phase_table
from kdaprof.analysis.trace.quality import Quality, judge_quality
from kdaprof.analysis.trace.queue import api_table, queue_of
from kdaprof.analysis.trace.ranks import collectives_of
from kdaprof.analysis.trace.steps import step_table
from kdaprof.analysis.trace.strip import strip_of
from kdaprof.errors import UsageError
from kdaprof.timeline.columns import Index, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What part of a trace to look at: all of it, steps `first` … `last` − 1, the annotations called `phase`, or
    those of them that begin in these steps.

    Steps are numbered as in their names (`ProfilerStep#7` is 7), else from 0.
    """

    first_step: int | None = None
    last_step: int | None = None
    phase: str | None = None

    @property
    def by_steps(self) -> bool:
        """Whether only some steps are asked for."""
        return self.first_step is not None or self.last_step is not None


def analyse(timeline: Timeline, scope: Scope | None = None) -> TraceReport:
    """Analyse a timeline. Raises `UsageError` when the scope names steps or a phase that the trace does not have."""
    scope = scope or Scope()
    context = make_context(timeline, step_name=scope.phase)
    positions = _positions(context, scope)
    views = [view for device in timeline.devices() if (view := _view(context, device, scope, positions)) is not None]
    quality = judge_quality(context, views)
    devices = tuple(_device(context, view, quality, positions) for view in views)
    idle = sum((device.idle for device in devices), IdleSplit())
    decision = decide(
        busy_ns=sum(device.busy_ns for device in devices),
        idle=idle,
        drained_by_sync_ns=sum(device.drained_by_sync_ns for device in devices),
        fit=quality.verdict != "unfit",
        events=sum(device.busy.events for device in devices),
    )
    host = timeline.thread >= 0
    span = int(timeline.end_ns[host].max() - timeline.start_ns[host].min()) if host.any() else None
    return TraceReport(
        source=timeline.source,
        quality=quality,
        devices=devices,
        decision=decision,
        findings=trace_findings(context, views, devices),
        collectives=collectives_of(context),
        host_ns=span,
        host_events=int(host.sum()),
    )


def _positions(context: Context, scope: Scope) -> range | None:
    """Positions of the steps in scope; None: everything."""
    if scope.phase is not None and not len(context.steps):
        names = {context.timeline.names[index] for index in context.ranges.name.tolist()}
        known = sorted(name for name in names if not STEP_NAME.match(name))
        shown = ", ".join(known[:8]) + (", …" if len(known) > 8 else "") if known else "none"
        raise UsageError(f"no annotation is called {scope.phase!r}; the trace has: {shown}")
    if scope.phase is None:
        return _chosen_steps(context.steps, scope) if scope.by_steps else None
    if not scope.by_steps:
        return range(len(context.steps))
    steps = steps_of(context.timeline)
    chosen = _chosen_steps(steps, scope)
    begin_ns, end_ns = steps.start_ns[chosen.start], steps.end_ns[chosen.stop - 1]
    starts = context.steps.start_ns
    inside = np.flatnonzero((starts >= begin_ns) & (starts < end_ns))
    if not inside.size:
        raise UsageError(f"--steps with --phase: no annotation {scope.phase!r} begins in these steps")
    return range(int(inside[0]), int(inside[-1]) + 1)


def _chosen_steps(steps: Steps, scope: Scope) -> range:
    """Positions of the steps asked for by number."""
    if not len(steps):
        raise UsageError("--steps: the trace has no steps (ProfilerStep#, or ranges called step or iteration)")
    numbers = [number if number is not None else place for place, number in enumerate(steps.numbers)]
    low = min(numbers) if scope.first_step is None else scope.first_step
    high = max(numbers) + 1 if scope.last_step is None else scope.last_step
    chosen = [place for place, number in enumerate(numbers) if low <= number < high]
    if not chosen:
        raise UsageError(f"--steps {low}:{high}: the trace has steps {min(numbers)} to {max(numbers)}")
    return range(chosen[0], chosen[-1] + 1)


def _view(context: Context, device: int, scope: Scope, positions: range | None) -> DeviceView | None:
    rows = device_rows(context.timeline, device)
    if positions is not None:
        step = context.step_of[rows]
        rows = rows[(step >= positions.start) & (step < positions.stop)]
    if not rows.size:
        return None
    view = device_view(context, device, rows)
    if scope.phase is None:
        return view
    return DeviceView(view.work, _within_steps(context, view.gaps), view.latency)


def _within_steps(context: Context, gaps: Gaps) -> Gaps:
    """Only gaps between two events of the same annotated window: what lies between windows is not asked for."""
    before = np.where(gaps.previous == NO_EVENT, NO_STEP, context.step_of[gaps.previous])
    keep = before == context.step_of[gaps.following]
    return Gaps(
        gaps.start_ns[keep],
        gaps.end_ns[keep],
        gaps.previous[keep],
        gaps.following[keep],
        gaps.classes[:, keep],
        gaps.cause[keep],
    )


def _device(context: Context, view: DeviceView, quality: Quality, positions: range | None) -> DeviceReport:
    rows: Index = view.work.rows
    busy = busy_of(context.timeline, view.device, rows)
    assert busy is not None  # a view has rows
    idle = view.gaps.split()
    drained = view.gaps.caused_ns(Cause.DRAINED_BY_SYNC)
    phases, outside = phase_table(context, view)
    names = {device.index: device.name for device in context.timeline.source.devices}
    return DeviceReport(
        device=view.device,
        name=names.get(view.device),
        busy=busy,
        busy_ns=view.work.coverage.total_ns,
        idle=idle,
        drained_by_sync_ns=drained,
        starved_ns=view.gaps.caused_ns(Cause.STARVED),
        queued_ns=view.gaps.caused_ns(Cause.QUEUED),
        latency_ns=None if view.latency is None else view.latency.median_ns,
        launches=api_table(context, view),
        queue=queue_of(context, view),
        kernels=kernel_rows(context.timeline, view.device, rows),
        steps=step_table(context, view, positions),
        phases=phases,
        outside=outside,
        operators=operator_table(context, view),
        modules=module_table(context, view),
        paths=path_table(context, view, phases),
        tensor_shapes=tensor_shapes(context, view, phases),
        counterfactual=counterfactual(context, view),
        strip=strip_of(view),
        decision=decide(
            busy_ns=view.work.coverage.total_ns,
            idle=idle,
            drained_by_sync_ns=drained,
            fit=quality.verdict != "unfit",
            events=busy.events,
        ),
    )


def total_launches(devices: Sequence[DeviceReport]) -> int:
    """Launch calls over all devices."""
    return sum(row.calls for device in devices for row in device.launches)
