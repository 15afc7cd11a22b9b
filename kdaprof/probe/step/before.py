"""What is known of a step's cells before the first step: what its op is declared to launch, what must be missing."""

from __future__ import annotations

from kdaprof.kda.declared import declared_counts
from kdaprof.kda.shapes import OpShape
from kdaprof.kda.signatures import SIGNATURES
from kdaprof.probe.bench import Bench
from kdaprof.probe.declared import WITHOUT_GPU
from kdaprof.runs.cells import CellKey
from kdaprof.runs.record import DeclaredCounts, Observed
from kdaprof.workloads.step.spec import VIEWS_OF_THE_OP, StepSpec

TRAINING = ("step", "bwd", "bwd.kda")
"""Cells that hold a backward pass of the op."""


def observed_step(spec: StepSpec, key: CellKey, bench: Bench) -> Observed:
    """The observation of one cell of a step, before anything ran."""
    device, whole = bench.device, key.phase == "step"
    missing = dict.fromkeys(WITHOUT_GPU, "no NVIDIA GPU on this machine") if device.kind != "cuda" else {}
    if "." in key.phase:
        missing |= {"wall_ns": "calls inside a phase are not synchronised: see host_ns and gpu_busy_ns"}
    missing |= {"util_mean": "sampled for the whole step"} if not whole and device.kind == "cuda" else {}
    own = spec.target is not None
    return Observed(
        device="cuda" if device.kind == "cuda" else "cpu",
        borders="call" if whole else "phase",
        trains=key.phase in TRAINING and not own,
        cache="rotate",
        input_sets=spec.batches,
        tokens=key.size("B") * key.size("T") if whole and not own else None,
        clock_resolution_ns=bench.clock_resolution_ns,
        l2_bytes=device.traits.l2_bytes,
        declared=declared_step(spec) if whole and key.mode == "eager" and not own else None,
        signatures=SIGNATURES if whole and not own else (),
        missing=missing,
    )


def declared_step(spec: StepSpec) -> DeclaredCounts | None:
    """Launches of the op in one step: forward and backward in each iteration, and the teacher's forward.

    The fused path takes contiguous tensors: each input that the model hands over as a view is copied first.
    """
    key, size = spec.key, spec.size
    shape = OpShape(key.size("B"), key.size("T"), size.heads, size.head_dim, size.head_dim)
    parts = [
        declared_counts(key.path, phase, shape, spec.chunk, key.dtype, context=key.context)
        for phase in ("fwdbwd", "fwd")
    ]
    iters = key.size("iters")
    ranges = [part.launches for part in parts if part is not None and part.launches is not None]
    if len(ranges) < len(parts):
        return None
    forwards = len(parts) + key.context.startswith("checkpoint")
    copies = forwards * VIEWS_OF_THE_OP if key.path == "fused" else 0
    low, high = (sum(one[end] for one in ranges) + copies for end in (0, 1))
    return DeclaredCounts(launches=(iters * low, iters * high), allocs=None)
