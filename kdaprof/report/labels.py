"""What figures are called in tables, and how each was taken."""

from __future__ import annotations

# fact → (column name, how it is taken)
FIGURES: dict[str, tuple[str, str]] = {
    "wall_ns": ("wall", "host clock around one call, synchronised before and after, unprofiled: what a user waits"),
    "host_ns": ("host", "host clock until the call returns, not synchronised, unprofiled: Python, dispatch, launches"),
    "gpu_span_ns": ("event span", "between two CUDA events around the call, idle included: not GPU work"),
    "gpu_busy_ns": ("busy", "union over all streams of device intervals, in profiled repeats: GPU work"),
    "pipelined_ns": ("pipelined", "calls back to back with one synchronise at the end, per call"),
    "idle_ns": ("wall − busy", "the call's time in which the GPU did nothing: head, gaps and drain; derived"),
    "host_bound": ("host-bound", "(wall − busy) / wall; derived"),
    "launches": (
        "launches",
        "launch calls of one call (kernels, copies, sets; a graph launch is one), profiled repeats",
    ),
    "allocs": ("allocs", "allocations of one call, counters read outside the timed part"),
    "alloc_bytes": ("allocated", "bytes allocated by one call"),
    "peak_bytes": ("peak", "peak of allocated memory over what was allocated before the call"),
    "reserved_growth_bytes": ("pool growth", "growth of the allocator's pool while samples were taken"),
    "inflation": ("inflation", "wall with CUDA activity recorded / wall without; derived"),
    "graph_removed": (
        "removed",
        "(eager wall − graph wall) / (eager wall − busy): the launch overhead a graph takes away",
    ),
    "idle_head_ns": ("head", "from the call's start to the first device event"),
    "idle_sync_ns": ("sync", "the host was inside a synchronising call"),
    "idle_allocator_ns": ("allocator", "the host was inside cudaMalloc, cudaFree or their like"),
    "idle_jit_ns": ("jit", "the host was loading a module, compiling or autotuning"),
    "idle_dispatch_ns": ("dispatch", "the host was inside an operator or another runtime call"),
    "idle_host_other_ns": ("host, other", "the host was in no traced operator: Python, data loading"),
    "idle_launch_call_ns": ("launch call", "the launch call itself was running"),
    "idle_launch_latency_ns": (
        "launch latency",
        "after the launch call, up to the device's latency with an empty queue",
    ),
    "idle_device_wait_ns": ("device wait", "after that: stream order, a dependency, a slow start"),
    "idle_graph_gap_ns": ("graph gap", "between events of one graph launch"),
    "idle_no_launch_record_ns": ("no launch record", "the trace holds no launch for the next device event"),
    "idle_unclassified_ns": ("unclassified", "none of the other classes"),
    "idle_drain_ns": ("drain", "from the last device event to the return of the synchronise"),
    "drained_by_sync_ns": ("drained by sync", "idle in gaps that a synchronising call caused, however they were spent"),
    "floor_ns": ("floor", "max(operations / matmul ceiling, compulsory bytes / copy ceiling), ceilings of this run"),
    "floor_share": ("floor / busy", "share of the floor in the GPU work; derived"),
    "util_mean": ("sampled util.", "mean of NVML utilisation while the call runs in a loop"),
    "util_idle_share": ("time ≤ 5 %", "share of the time whose NVML reading is at most 5 %"),
    "error_l2": ("error", "worst tensor against the reference, relative L2, checked before anything is timed"),
    "error_max": ("max abs error", "largest absolute difference from the reference"),
    "cold_ns": ("cold", "first call in a fresh process with empty caches"),
    "tokens_per_s": ("tokens/s", "tokens of the call / wall; derived"),
    "pool_bytes": ("pool", "private memory pool of the captured graph"),
    "input_copy_ns": ("input copy", "copying new inputs into the graph's static buffers, per call"),
}

# idle classes in the order of a call; `head` is classified like a gap, and so it is among them
IDLE_CLASSES = tuple(name for name in FIGURES if name.startswith("idle_") and name not in {"idle_ns", "idle_head_ns"})

SEVERITY = {"error": "error", "warn": "warning", "info": "note"}

MISSING = {
    "no-device": "no device",
    "not-supported": "not supported",
    "not-applicable": "not applicable",
    "refused": "refused",
    "failed": "failed",
}


def label(fact: str) -> str:
    """Column name of a fact."""
    return FIGURES[fact][0]


def how(fact: str) -> str:
    """How a fact is taken, in one line."""
    return FIGURES[fact][1]
