"""Diagnoses from one trace: each with its numbers, its threshold, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kdaprof.analysis.intervals import union_ns
from kdaprof.analysis.trace.apis import Api
from kdaprof.analysis.trace.context import Context, DeviceView
from kdaprof.analysis.trace.devices import DeviceReport
from kdaprof.analysis.trace.phases import TINY_KERNEL_NS, TINY_KERNELS_MIN
from kdaprof.analysis.trace.sites import CallSite, call_sites
from kdaprof.runs.results import Finding
from kdaprof.runs.units import format_fraction
from kdaprof.timeline.columns import Bool, Index, Kind

SYNCS_PER_STEP = 1.0
"""A step may close with one synchronise (`loss.item()` for the log); more than this a step is a finding."""

SYNCS_WITHOUT_STEPS = 10
"""In a trace without steps, so many synchronising calls are a finding."""

GRAPH_INSTANTIATIONS = 2
"""A graph is instantiated once; more often in one trace is a finding."""

COPY_BUSY_MIN, COPY_SPAN_MIN = 0.30, 0.10
"""From these shares of the busy time and of the span in which only copies ran on, the two ways to count busy are
shown side by side."""

OVERHEAD_SHARE = 0.05
"""From this share of the idle inside the profiler's own records on, the trace is mostly about the profiler."""

CAPTURE_WORTH = 0.30
"""A capture that would take at least this share off the window is worth trying."""

MAX_REGIONS = 5


def trace_findings(
    context: Context, views: Sequence[DeviceView], devices: Sequence[DeviceReport]
) -> tuple[Finding, ...]:
    """All findings of a trace, the most severe first."""
    found: list[Finding] = []
    if devices:
        found += _syncs(context, views)
        found += _allocations(context, views)
        found += _instantiations(context)
        found += _profiler(context, devices)
    for device in devices:
        found += _tiny(device)
        found += _tensor_path(device)
        found += _capture(device)
        found += _copies(device)
    order = {"error": 0, "warn": 1, "info": 2}
    return tuple(sorted(found, key=lambda finding: order[finding.severity]))


def _steady_calls(context: Context, mask: Bool) -> tuple[Index, int]:
    """Calls in steady steps (all but the first), or in the whole trace without steps; and the number of steps."""
    n = len(context.steps)
    if n < 2:
        return np.flatnonzero(mask), n
    return np.flatnonzero(mask & (context.step_of >= 1)), n - 1


def _where(sites: Sequence[CallSite]) -> str:
    shown = [
        f"{site.calls} × {site.api}"
        + (f" in {site.operator}" if site.operator else "")
        + (f" at {site.site}" if site.site else "")
        for site in sites[:3]
    ]
    return "; ".join(shown) + (f"; and {len(sites) - 3} more kinds" if len(sites) > 3 else "")


def _syncs(context: Context, views: Sequence[DeviceView]) -> Iterator[Finding]:
    waits = context.links.synchronises.copy()
    device_last = max(int(view.work.coverage.end_ns.max()) for view in views)
    waits &= context.timeline.start_ns < device_last  # the one that closes the recording is the profiler's
    calls, steps = _steady_calls(context, waits)
    per_step = calls.size / steps if steps else float(calls.size)
    if per_step <= (SYNCS_PER_STEP if steps else SYNCS_WITHOUT_STEPS):
        return
    sites = call_sites(context, calls)
    total = sum(site.total_ns for site in sites)
    unit = "a step" if steps else "in the trace"
    yield Finding(
        id="synchronises-in-steps",
        severity="warn",
        cell=None,
        text=f"{per_step:.0f} synchronising calls {unit} keep the host from running ahead: {_where(sites)}",
        evidence={"calls": int(calls.size), "steps": steps, "inside_ns": total},
        threshold={"calls_per_step": SYNCS_PER_STEP, "calls_without_steps": SYNCS_WITHOUT_STEPS},
        next="keep values on the device (no .item(), .cpu(), print of a tensor), or read them once every many steps",
    )


def _allocations(context: Context, views: Sequence[DeviceView]) -> Iterator[Finding]:
    calls, steps = _steady_calls(context, (context.links.api_of_row & Api.ALLOCATOR) != 0)
    lost = sum(view.gaps.split().allocator for view in views)
    if not calls.size or (not steps and not lost):
        return
    sites = call_sites(context, calls)
    yield Finding(
        id="allocations-in-steady-steps" if steps > 1 else "allocations-by-the-driver",
        severity="warn",
        cell=None,
        text=(
            f"{calls.size} driver allocations"
            + (f" in {steps} steady steps" if steps > 1 else "")
            + f" cost the device {lost / 1e6:.1f} ms of idle: {_where(sites)}"
        ),
        evidence={"calls": int(calls.size), "idle_ns": lost},
        threshold={"calls": 0},
        next="let the caching allocator keep its pool: no empty_cache() in the loop, steady shapes, "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    )


def _instantiations(context: Context) -> Iterator[Finding]:
    mask = (context.links.api_of_row & Api.GRAPH_INSTANTIATE) != 0
    rows = np.flatnonzero(mask)
    if rows.size < GRAPH_INSTANTIATIONS:
        return
    spent = int((context.timeline.end_ns[rows] - context.timeline.start_ns[rows]).sum())
    steps = len({step for step in context.step_of[rows].tolist() if step >= 0})
    yield Finding(
        id="graph-instantiated-repeatedly",
        severity="error",
        cell=None,
        text=f"a CUDA graph is instantiated {rows.size} times"
        + (f" in {steps} steps" if steps else "")
        + f", {spent / 1e6:.1f} ms on the host: it is captured anew instead of replayed",
        evidence={"instantiations": int(rows.size), "host_ns": spent},
        threshold={"instantiations": GRAPH_INSTANTIATIONS},
        next="capture once and replay; look for shapes, Python values or pools that change from step to step",
    )


def _profiler(context: Context, devices: Sequence[DeviceReport]) -> Iterator[Finding]:
    timeline = context.timeline
    rows = np.flatnonzero(timeline.of_kind(Kind.OVERHEAD))
    begin = min(device.busy.start_ns for device in devices)
    end = max(device.busy.end_ns for device in devices)
    spent = union_ns(np.clip(timeline.start_ns[rows], begin, end), np.clip(timeline.end_ns[rows], begin, end))
    idle = sum(device.idle.total_ns for device in devices)
    if not idle or spent < OVERHEAD_SHARE * idle:
        return
    yield Finding(
        id="profiler-overhead",
        severity="info",
        cell=None,
        text=(
            f"inside the window the profiler worked for itself {spent / 1e6:.1f} ms, "
            f"{format_fraction(spent / idle)} of the idle"
        ),
        evidence={"overhead_ns": spent, "idle_ns": idle},
        threshold={"share_of_idle": OVERHEAD_SHARE},
        next="warm the profiler up (schedule wait and warmup), and judge the wall time from unprofiled runs",
    )


def _tiny(device: DeviceReport) -> Iterator[Finding]:
    tiny = [phase for phase in device.phases if phase.tiny_kernels]
    same = {(phase.parent, phase.total_device_events) for phase in tiny}  # a range that only wraps another one
    regions = [phase for phase in tiny if (phase.name, phase.total_device_events) not in same]
    more = len(regions) - MAX_REGIONS
    for place, phase in enumerate(regions[:MAX_REGIONS]):
        kernels = phase.total_device_events / phase.calls
        median = phase.median_kernel_ns or 0
        yield Finding(
            id="many-tiny-kernels",
            severity="warn",
            cell=None,
            text=f"{phase.name!r} issues {kernels:,.0f} kernels of median {median / 1000:.1f} µs a call"
            + (f"; {more} more regions do, see the phases" if more > 0 and place == MAX_REGIONS - 1 else ""),
            evidence={"region": phase.name, "kernels_per_call": kernels, "median_ns": median, "calls": phase.calls},
            threshold={"kernels_per_call": TINY_KERNELS_MIN, "median_ns": TINY_KERNEL_NS},
            next="fuse them (torch.compile, a Triton kernel) or replay the region from a CUDA graph",
        )


def _tensor_path(device: DeviceReport) -> Iterator[Finding]:
    for shape in device.tensor_shapes[:MAX_REGIONS]:
        yield Finding(
            id="tensor-path-shape",
            severity="warn",
            cell=None,
            text=(
                f"{shape.region!r} has the shape of a tensor path: {shape.kernels_per_call:,.0f} launches a call, "
                f"{format_fraction(shape.general_share)} of them general kernels (aten, BLAS, copies), device idle "
                f"{format_fraction(shape.idle_share)}"
            ),
            evidence={"region": shape.region, "kernels_per_call": shape.kernels_per_call, "idle": shape.idle_share},
            threshold={"kernels_per_call": TINY_KERNELS_MIN},
            next="a fused kernel meant to run here did not: `kdaprof.kda.gate_records()` in that job says why",
        )


def _capture(device: DeviceReport) -> Iterator[Finding]:
    estimate = device.counterfactual
    if estimate is None or estimate.now_ns <= 0 or estimate.removed_low is None:
        return
    saved = 1.0 - estimate.high_ns / estimate.now_ns
    if saved < CAPTURE_WORTH:
        return
    blockers = ", ".join(f"{count} × {what}" for what, count in estimate.blockers)
    yield Finding(
        id="graph-capture-would-help",
        severity="info",
        cell=None,
        text=(
            f"captured into a CUDA graph, {estimate.now_ns / 1e6:.2f} ms would take {estimate.low_ns / 1e6:.2f} to "
            f"{estimate.high_ns / 1e6:.2f} ms (derived, {estimate.basis})"
            + (f"; in the way: {blockers}" if blockers else "; nothing in the trace stands in the way")
        ),
        evidence={"now_ns": estimate.now_ns, "low_ns": estimate.low_ns, "high_ns": estimate.high_ns},
        threshold={"share_saved": CAPTURE_WORTH},
        next=("remove what is in the way, then measure it: " if blockers else "measure it: ")
        + "`kdaprof probe` captures, replays and compares outputs",
    )


def _copies(device: DeviceReport) -> Iterator[Finding]:
    busy, kernels = device.busy_ns, device.busy.kernel_busy_ns
    span = device.span_ns
    if not busy or busy - kernels < max(COPY_BUSY_MIN * busy, COPY_SPAN_MIN * span):
        return
    yield Finding(
        id="copies-keep-the-device-busy",
        severity="info",
        cell=None,
        text=(
            f"device {device.device}: kernels alone keep it busy {format_fraction(kernels / span)} of the time, "
            f"with copies and sets {format_fraction(busy / span)}"
        ),
        evidence={"kernel_busy_ns": kernels, "busy_ns": busy, "span_ns": span},
        threshold={"copy_only_share_of_busy": COPY_BUSY_MIN, "copy_only_share_of_span": COPY_SPAN_MIN},
        next="overlap copies with kernels (pinned memory, a stream of their own), or avoid them",
    )
