"""What is known of a cell before it runs: expected counts, kernel signatures, work, cache policy."""

from __future__ import annotations

from dataclasses import replace

from kdaprof.instruments.device import Device
from kdaprof.kda.cost import OpSize
from kdaprof.kda.declared import declared_counts
from kdaprof.kda.shapes import OpShape
from kdaprof.kda.signatures import SIGNATURES
from kdaprof.kda.traffic import work
from kdaprof.probe.bench import Bench
from kdaprof.probe.library import tokens_of
from kdaprof.runs.cells import DTYPE_BYTES, CellKey
from kdaprof.runs.record import Observed
from kdaprof.workloads.delta import facts as delta
from kdaprof.workloads.inputs import sets_to_exceed
from kdaprof.workloads.library import LIBRARIES
from kdaprof.workloads.op import CaseSpec, trains

WITHOUT_GPU = ("gpu_span_ns", "gpu_busy_ns", "launches", "graph_removed", "util_mean")


def observed_before(spec: CaseSpec, bench: Bench, *, cache: str) -> Observed:
    """The cell's observation as it stands before the first call."""
    key, device = spec.key, bench.device
    seen = Observed(
        device="cuda" if device.kind == "cuda" else "cpu",
        trains=trains(key.phase),
        cache=cache if spec.input_sets > 1 else "warm",
        input_sets=spec.input_sets,
        tokens=tokens_of(key),
        clock_resolution_ns=bench.clock_resolution_ns,
        l2_bytes=device.traits.l2_bytes,
        missing={} if device.kind == "cuda" else _without_gpu(),
    )
    if key.workload in LIBRARIES:  # what a library launches is its own affair: no counts are declared
        library = LIBRARIES[key.workload]
        return replace(seen, signatures=library.signatures(key), work=library.work(key))
    if key.workload in delta.DELTA:  # nobody has counted their launches
        return replace(seen, signatures=SIGNATURES, work=delta.work(key))
    extents = OpShape(*(key.size(axis) for axis in ("B", "T", "H", "K", "V")))
    return replace(
        seen,
        declared=declared_counts(key.path, key.phase, extents, key.size("C"), key.dtype, context=key.context),
        signatures=SIGNATURES,
        work=work(key.path, key.phase, OpSize.of(key.shape), key.dtype),
    )


def set_bytes(key: CellKey) -> int:
    """Bytes of one input set of a cell, with the gradient of its output."""
    if key.workload in LIBRARIES:
        return LIBRARIES[key.workload].set_bytes(key)
    if key.workload in delta.DELTA:
        return delta.set_bytes(key)
    tokens = key.size("B") * key.size("T") * key.size("H")
    return tokens * (3 * key.size("K") + 2 * key.size("V") + 1) * DTYPE_BYTES[key.dtype]


def input_sets(key_bytes: int, device: Device, *, cache: str) -> int:
    """One set for `--cache warm` and without a GPU; else enough that a call finds its inputs evicted from L2."""
    if cache == "warm" or device.kind != "cuda":
        return 1
    return sets_to_exceed(device.traits.l2_bytes, key_bytes)


def _without_gpu() -> dict[str, str]:
    return dict.fromkeys(WITHOUT_GPU, "no NVIDIA GPU on this machine")
