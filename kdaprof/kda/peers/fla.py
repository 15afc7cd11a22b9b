"""FLA's `chunk_kda`: the arguments are ours, name by name (q, k, g [B, T, H, K], v [B, T, H, V], beta [B, T, H], g the
natural-log decay), with everything that it could do to them inside its kernels switched off.
"""

from __future__ import annotations

from torch import Tensor

from kdaprof.kda.peers.arguments import options
from kdaprof.kda.peers.loading import Installed

_NEEDED = ("q", "k", "v", "g", "beta", "scale")
_WANTED = {
    "output_final_state": False,
    # Our q and k have length 1, our g is the decay and our beta the gate: nothing is left for its kernels to apply.
    "use_qk_l2norm_in_kernel": False,
    "use_gate_in_kernel": False,
    "use_beta_sigmoid_in_kernel": False,
    "head_first": False,  # versions that could take [B, H, T, …]
}


class FlaKda:
    """q, k, v, g, beta → o through `fla.ops.kda.chunk_kda`, with its own chunk length (64)."""

    def __init__(self, installed: Installed) -> None:
        self._function = installed.function
        self._options = options(installed.who, installed.function, needed=_NEEDED, wanted=_WANTED)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
        """One call, forward; its backward is autograd's to ask for."""
        made = self._function(q=q, k=k, v=v, g=g, beta=beta, scale=q.shape[-1] ** -0.5, **self._options)
        o: Tensor = made[0]
        return o
