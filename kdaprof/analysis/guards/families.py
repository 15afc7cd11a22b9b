"""Families of figures: what a rule touches is named by what disturbs it, not by a list in every rule."""

from __future__ import annotations

from kdaprof.runs.facts import EAGER_FACTS

# Portions of the probe's idle: scaled from profiled repeats, given as a range between two kinds of recording.
IDLE_CLASSES = frozenset(
    {name for name in EAGER_FACTS if name.startswith("idle_") and name != "idle_ns"} | {"drained_by_sync_ns"}
)
# Read by the host's clock around executions of the cell.
SAMPLED_BY_HOST = frozenset({"wall_ns", "host_ns", "pipelined_ns"})
# Whatever moves when the host is slow: idle between two events belongs to the host too.
HOST_TIMED = (
    SAMPLED_BY_HOST
    | IDLE_CLASSES
    | {
        "gpu_span_ns",
        "idle_ns",
        "host_bound",
        "inflation",
        "graph_removed",
        "input_copy_ns",
        "cold_ns",
        "tokens_per_s",
        "util_mean",
        "util_idle_share",
    }
)
# Work of the device alone: a slow host leaves it as it is.
DEVICE_TIMED = frozenset({"gpu_busy_ns", "floor_share"})
TIMED = HOST_TIMED | DEVICE_TIMED
FLOOR = frozenset({"floor_ns", "floor_share"})
COUNTED = frozenset({"launches", "allocs", "alloc_bytes", "peak_bytes", "reserved_growth_bytes", "pool_bytes"})
ERRORS = frozenset({"error_l2", "error_max"})
