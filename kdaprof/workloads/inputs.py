"""Inputs of the KDA op at its real operating point, seeded, in as many sets as the cache policy needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import torch

# The operating point of a model at initialisation (a_log = −3): decay a token and channel, gate after the sigmoid.
DECAY = 0.054
GATE = 0.5
SPREAD = 0.1  # relative spread around both, so that no kernel sees a constant

INPUT_NAMES = ("q", "k", "v", "g", "beta")


class Inputs(Protocol):
    """One set of an op's arguments, with the gradient of its output."""

    @property
    def workload(self) -> str:
        """The op that takes them."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments, in the op's order."""
        ...

    @property
    def do(self) -> torch.Tensor:
        """The gradient of the output."""
        ...

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The arguments in the order of `names`."""
        ...

    def like(self, tensors: tuple[torch.Tensor, ...], do: torch.Tensor) -> Self:
        """The same arguments with other tensors."""
        ...


@dataclass(frozen=True, slots=True)
class OpInputs:
    """q, k, g [B, T, H, K]; v, do [B, T, H, V]; beta [B, T, H]: one set, with the gradient of the output."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    g: torch.Tensor
    beta: torch.Tensor
    do: torch.Tensor

    @property
    def workload(self) -> str:
        """`kda`."""
        return "kda"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments, in the op's order."""
        return INPUT_NAMES

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The op's arguments in order."""
        return (self.q, self.k, self.v, self.g, self.beta)

    def like(self, tensors: tuple[torch.Tensor, ...], do: torch.Tensor) -> OpInputs:
        """The same arguments with other tensors."""
        q, k, v, g, beta = tensors
        return OpInputs(q, k, v, g, beta, do)

    @property
    def nbytes(self) -> int:
        """Bytes of the arguments and of the output's gradient."""
        return sum(t.numel() * t.element_size() for t in (*self.tensors(), self.do))


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """What `make_inputs` needs; one value of it gives the same tensors in every process on the same device kind."""

    shape: tuple[tuple[str, int], ...]
    dtype: str
    device: str
    seed: int
    requires_grad: bool


class Drawer:
    """The random values of one set, in the order in which they are asked for.

    Drawn in float32 on the CPU's generator, so that GPU and CPU see the same values.
    """

    def __init__(self, spec: InputSpec, index: int) -> None:
        size = dict(spec.shape)
        batch, length, heads, k_dim, v_dim = (size[axis] for axis in ("B", "T", "H", "K", "V"))
        self.heads = (batch, length, heads)
        self.keys = (*self.heads, k_dim)
        self.values = (*self.heads, v_dim)
        self._generator = torch.Generator().manual_seed(spec.seed * 1_000_003 + index)
        self._spec = spec

    def normal(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Standard normal."""
        return torch.randn(shape, generator=self._generator, dtype=torch.float32)

    def unit(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Directions of length 1."""
        return torch.nn.functional.normalize(self.normal(shape), dim=-1)

    def decay(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Natural-log decay, at most 0."""
        return -DECAY * (1 + SPREAD * self.normal(shape)).clamp_min(0.0)

    def gate(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Gates between 0 and 1."""
        return (GATE * (1 + SPREAD * self.normal(shape))).clamp(0.0, 1.0)

    def place(self, values: torch.Tensor, *, grad: bool | None = None) -> torch.Tensor:
        """On the spec's device and in its dtype; its gradient is asked for as the spec says, unless `grad` does."""
        wanted = self._spec.requires_grad if grad is None else grad
        dtype = getattr(torch, self._spec.dtype)
        return values.to(device=self._spec.device, dtype=dtype).contiguous().requires_grad_(wanted)


def make_inputs(spec: InputSpec, index: int) -> OpInputs:
    """Set number `index`."""
    drawer = Drawer(spec, index)
    q, k, v = drawer.unit(drawer.keys), drawer.unit(drawer.keys), drawer.normal(drawer.values)
    g, beta, do = drawer.decay(drawer.keys), drawer.gate(drawer.heads), drawer.normal(drawer.values)
    q, k, v, g, beta = map(drawer.place, (q, k, v, g, beta))
    return OpInputs(q, k, v, g, beta, drawer.place(do, grad=False))


def sets_to_exceed(cache_bytes: int | None, set_bytes: int, *, most: int = 8) -> int:
    """How many sets it takes until the ones not in use fill the cache: each call then finds its inputs evicted."""
    if not cache_bytes or set_bytes <= 0:
        return 1
    return max(2, min(most, -(-2 * cache_bytes // set_bytes)))
