"""The fused path: KDA forward and backward as a handful of Triton kernels (log: README.md beside this file).

Importing this package imports torch, not Triton; Triton is imported by the first call.
"""

from __future__ import annotations

from kdaprof.kda.fused.function import fused_kda
from kdaprof.kda.fused.ops import fused_kda_op

KERNEL_PREFIX = "kdaprof_"

# Kernel launches of one call, by phase; an empty batch launches nothing.
LAUNCHES = {"fwd": 2, "bwd": 3}

# Requests to torch's caching allocator of one call with contiguous inputs and all of q, k, v, g, beta
# requiring gradients: o and the records; five gradients and the gradient records. One more forward for the final state,
# one more backward for the initial state's gradient.
ALLOCS = {"fwd": 2, "bwd": 6}

__all__ = ["ALLOCS", "KERNEL_PREFIX", "LAUNCHES", "fused_kda", "fused_kda_op"]
