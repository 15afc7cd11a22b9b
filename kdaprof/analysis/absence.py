"""Why a figure is missing: the kind, and the reason in words."""

from __future__ import annotations

from kdaprof.analysis.celldata import CellData
from kdaprof.runs.facts import Fact, Missing, Unit, absent

# What only a GPU can give. Their names in `observed.missing` carry the machine's own words.
GPU_FIGURES = frozenset(
    {
        "gpu_span_ns",
        "gpu_busy_ns",
        "idle_ns",
        "host_bound",
        "launches",
        "allocs",
        "alloc_bytes",
        "peak_bytes",
        "reserved_growth_bytes",
        "inflation",
        "graph_removed",
        "drained_by_sync_ns",
        "floor_ns",
        "floor_share",
        "util_mean",
        "util_idle_share",
        "pool_bytes",
        "input_copy_ns",
    }
)

_NOT_TAKEN = {
    "gpu_span_ns": "no repeat with CUDA events was taken",
    "gpu_busy_ns": "no repeat was profiled",
    "launches": "no repeat was profiled",
    "pipelined_ns": "no burst was taken",
    "allocs": "no allocator repeat was taken",
    "alloc_bytes": "no allocator repeat was taken",
    "peak_bytes": "no allocator repeat was taken",
    "reserved_growth_bytes": "reserved memory was read fewer than two times during the rounds",
    "util_mean": "no utilisation was sampled (--util-seconds)",
    "util_idle_share": "no utilisation was sampled (--util-seconds)",
    "cold_ns": "not asked for (--cold)",
    "tokens_per_s": "the workload has no tokens",
    "error_l2": "outputs were not compared with a reference",
    "error_max": "outputs were not compared with a reference",
    "input_copy_ns": "copying the inputs was not timed",
    "pool_bytes": "the capture's memory pool was not read",
}

_NO_LOOP = "a backward has no loop of its own: the forward before it would be counted too; see forward + backward"
_NO_BACKWARD = {
    "pipelined_ns": "a backward cannot run back to back: each needs a forward before it",
    "util_mean": _NO_LOOP,
    "util_idle_share": _NO_LOOP,
    "cold_ns": "a first backward waits for its forward: see forward + backward",
}


def needs_gpu(name: str) -> bool:
    """Whether a figure can exist only where there is a GPU."""
    return name in GPU_FIGURES or name.startswith("idle_")


def why_absent(data: CellData, name: str, unit: Unit) -> Fact:
    """The absence of a figure that nothing was measured for."""
    status, seen = data.cell.status, data.observed
    if status != "ok":
        kinds: dict[str, Missing] = {"failed": "failed", "unavailable": "not-supported", "skipped": "not-applicable"}
        only_gpu = needs_gpu(name) or data.cell.key.mode != "eager"
        on_cpu = seen is not None and seen.device == "cpu" and only_gpu
        error = data.cell.error
        text = f"the cell is {status}"
        if error is not None:  # an unavailable path is no fault, and its reason needs no type
            text += f": {error.type}: {error.text}" if status == "failed" else f": {error.text}"
        return absent(unit, "no-device" if on_cpu and status == "unavailable" else kinds[status], text)
    told = seen.missing.get(name) if seen is not None else None
    if (seen is None or seen.device == "cpu") and needs_gpu(name):
        # One machine has one reason, whichever of its figures it was written down for.
        told = told or (seen.missing.get("gpu_busy_ns") if seen else None)
        return absent(unit, "no-device", told or "the cell ran on the CPU: there is no device to look at")
    if told:
        return absent(unit, "not-supported", told)
    if data.cell.key.phase == "bwd" and name in _NO_BACKWARD:
        return absent(unit, "not-applicable", _NO_BACKWARD[name])
    return absent(unit, "not-applicable", _NOT_TAKEN.get(name, "not measured in this run"))
