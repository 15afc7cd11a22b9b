"""What the gate decides and writes down: the path chosen, and the reason each other path was not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kdaprof.runs.record import Refusal

Op = Literal["kda", "gdn2"]
Phase = Literal["fwd", "bwd"]

PATHS: Final = ("fused", "tensor", "tensor-rows", "compiled", "reference")
"""Every path of ours, the preferred one first."""

AUTO: Final = "auto"


@dataclass(frozen=True, slots=True)
class Decision:
    """One outcome of the gate; equal calls share one."""

    op: str
    """One of `Op`, or a relative that a peer computes (`gdn`, `precond_kda`)."""
    asked: str
    """The `path=` of the call: a path's name, or `auto`."""
    chosen: str
    refused: tuple[Refusal, ...]
    """Each other path, in the order of `PATHS`."""
    device: str
    """torch's name of the device type: `cuda`, `cpu`, `meta`."""
    dtype: str
    """torch's name of the common dtype of q, k and v."""
    k_dim: int
    v_dim: int
    chunk: int
    traced: bool
    """Taken while torch.compile or torch.export traced the call; the compiled region itself decides nothing."""

    def why_not(self, path: str) -> str | None:
        """The reason `path` was not taken; None for the chosen one or an unknown name."""
        return next((r.reason for r in self.refused if r.path == path), None)


@dataclass(frozen=True, slots=True)
class GateRecord:
    """One event: a call was sent down a path, or its backward ran there."""

    phase: Phase
    path: str
    decision: Decision | None
    """None for a backward whose forward is not known to the gate (the fused backward reports its path alone)."""
    traced: bool
    captured: bool
    """Inside a CUDA Graph capture: replays run the same kernels and report nothing."""
