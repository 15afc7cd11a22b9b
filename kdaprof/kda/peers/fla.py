"""FLA's chunked ops: the arguments are ours, name by name and in our order (q, k, g [B, T, H, K], v [B, T, H, V],
gates a head [B, T, H], g the natural-log decay), with everything that it could do to them in its kernels switched off.

`chunk_precond_kda` brings q and k to length 1 whatever it is told; the definition of that op does so too.
"""

from __future__ import annotations

from typing import Final

from torch import Tensor

from kdaprof.kda.peers.arguments import options
from kdaprof.kda.peers.loading import Installed

_TENSORS: Final = {
    "kda": ("q", "k", "v", "g", "beta"),
    "gdn": ("q", "k", "v", "g", "beta"),
    "gdn2": ("q", "k", "v", "g", "b", "w"),
    "precond_kda": ("q", "k", "v", "g", "g_atk", "beta_atk", "beta"),
}
"""By op, in the order in which its workload hands them over."""
_WANTED: Final = {
    "output_final_state": False,
    # Our q and k have length 1, our g is the decay and our beta the gate: nothing is left for its kernels to apply.
    "use_qk_l2norm_in_kernel": False,
    "use_gate_in_kernel": False,
    "use_beta_sigmoid_in_kernel": False,
    "head_first": False,  # versions that could take [B, H, T, …]
}


class FlaOp:
    """The op's tensors in order → o through FLA's function for it, with its own chunk length (64)."""

    def __init__(self, installed: Installed) -> None:
        self._names = _TENSORS[installed.facts.op]
        self._function = installed.function
        needed = (*self._names, "scale")
        self._options = options(installed.who, installed.function, needed=needed, wanted=_WANTED)

    def __call__(self, *tensors: Tensor) -> Tensor:
        """One call, forward; its backward is autograd's to ask for."""
        given = dict(zip(self._names, tensors, strict=True))
        made = self._function(**given, scale=tensors[0].shape[-1] ** -0.5, **self._options)
        o: Tensor = made[0]
        return o
