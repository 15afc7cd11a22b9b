"""The verdict in one sentence with its numbers, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.analysis.trace.bound import DEVICE_CLASSES, HOST_CLASSES, Bound, Decision, decide
from kdaprof.analysis.trace.devices import TraceReport
from kdaprof.analysis.trace.idle import IdleSplit
from kdaprof.runs.units import format_fraction, format_ns

WORDS = {
    "sync": "synchronising",
    "allocator": "driver allocations",
    "jit": "compiling",
    "dispatch": "dispatch",
    "host_other": "untraced host work",
    "launch_call": "launch calls",
    "launch_latency": "launch latency",
    "device_wait": "waits on the device",
    "graph_gap": "gaps inside graphs",
    "no_launch_record": "no launch record",
    "unclassified": "unclassified",
}

_LAUNCH_LESS = "launch less: a fused kernel, torch.compile, or a CUDA graph (`kdaprof probe` measures what it buys)"
_NEXT_BY_CLASS = {
    "dispatch": _LAUNCH_LESS,
    "launch_call": _LAUNCH_LESS,
    "host_other": "see what Python does in the gaps: `py-spy record --pid N`; look at data loading first",
    "allocator": "keep the caching allocator's pool: no empty_cache() in the loop, expandable segments, steady shapes",
    "jit": "compile before the loop, and keep shapes steady so that nothing compiles again",
}


def overall(reports: Sequence[TraceReport]) -> Decision:
    """One decision over all devices of all traces; one trace that is unfit leaves the others to speak."""
    devices = [device for report in reports if report.quality.verdict != "unfit" for device in report.devices]
    if not devices:
        return reports[0].decision
    return decide(
        busy_ns=sum(device.busy_ns for device in devices),
        idle=sum((device.idle for device in devices), IdleSplit()),
        drained_by_sync_ns=sum(device.drained_by_sync_ns for device in devices),
        events=sum(device.busy.events for device in devices),
    )


def verdict_text(reports: Sequence[TraceReport], decision: Decision) -> str:
    """The sentence: what bounds, how much of what, and by which causes."""
    devices = [device for report in reports for device in report.devices]
    if not devices:
        host = max((report.host_ns or 0 for report in reports), default=0)
        events = sum(report.host_events for report in reports)
        return (
            f"Unknown: there is no device event in {'this trace' if len(reports) == 1 else 'these traces'}; the host "
            f"side spans {format_ns(host)} with {events:,} events."
        )
    busy = sum(device.busy_ns for device in devices)
    idle = sum((device.idle for device in devices), IdleSplit())
    span = busy + idle.total_ns
    each = " (all devices together)" if len(devices) > 1 else ""
    share = format_fraction(idle.total_ns / span) if span else "0 %"
    window = f"the device idles {share} of {format_ns(span)}{each}"
    drained = sum(device.drained_by_sync_ns for device in devices)
    causes = _largest(idle)
    if decision.bound == "unknown":
        return f"Unknown: {window}, but {decision.why}."
    if decision.bound == "gpu":
        return f"GPU-bound: {window}; it is busy {format_ns(busy)}."
    held = format_fraction(decision.share) if decision.share is not None else ""
    sentences: dict[Bound, str] = {
        "sync": f"Sync-bound: {window}; {held} of the idle ({format_ns(drained)}) lies in gaps drained by a "
        f"synchronise, where the host was not allowed to run ahead ({causes}).",
        "host": f"Host-bound: {window}; {held} of the idle is the host's: {causes}.",
        "device_wait": f"Device-wait-bound: {window}; {held} of the idle comes after its launch was issued: {causes}.",
        "mixed": f"Mixed: {window}, and no cause holds half of it: {causes}.",
    }
    return sentences[decision.bound]


def next_step(reports: Sequence[TraceReport], decision: Decision) -> str:
    """What to do first."""
    idle = sum((device.idle for report in reports for device in report.devices), IdleSplit())
    if decision.bound == "unknown":
        if not any(report.devices for report in reports):
            if not all(report.source.complete for report in reports):
                return "take a whole copy: the file is cut off or damaged, and no device event was read before that"
            return "record the device too: ProfilerActivity.CUDA, or `nsys profile -t cuda,nvtx`"
        return "record launches too (CUDA runtime and driver calls), from before the first kernel to after the last"
    if decision.bound == "gpu":
        return "the kernels are what counts: see the longest ones (`kdaprof probe` measures the card's ceilings)"
    if decision.bound == "sync":
        return "find the synchronising calls below and remove them: .item(), .cpu(), print of a tensor, pageable copies"
    if decision.bound == "device_wait":
        if idle.graph_gap >= max(idle.device_wait, idle.launch_latency):
            return "the graph's nodes are short beside the gaps between them: fewer, larger kernels"
        return "look at stream order: events, collectives and copies that others wait for"
    by_class = idle.by_class()
    largest = max(HOST_CLASSES, key=lambda name: by_class[name])
    return _NEXT_BY_CLASS[largest]


def _largest(idle: IdleSplit, top: int = 3) -> str:
    order = sorted(idle.by_class().items(), key=lambda item: -item[1])
    shown = [f"{WORDS[name]} {format_ns(value)}" for name, value in order[:top] if value]
    return ", ".join(shown)


def class_owner(name: str) -> str:
    """Whose time a class is: `host`, `device`, or `-` for what cannot be told."""
    return "host" if name in HOST_CLASSES or name == "sync" else "device" if name in DEVICE_CLASSES else "-"
