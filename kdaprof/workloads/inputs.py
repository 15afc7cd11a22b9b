"""Inputs of the KDA op at its real operating point, seeded, in as many sets as the cache policy needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

# The operating point of a model at initialisation (a_log = −3): decay a token and channel, gate after the sigmoid.
DECAY = 0.054
GATE = 0.5
SPREAD = 0.1  # relative spread around both, so that no kernel sees a constant

INPUT_NAMES = ("q", "k", "v", "g", "beta")


@dataclass(frozen=True, slots=True)
class OpInputs:
    """q, k, g [B, T, H, K]; v, do [B, T, H, V]; beta [B, T, H]: one set, with the gradient of the output."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    g: torch.Tensor
    beta: torch.Tensor
    do: torch.Tensor

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The op's arguments in order."""
        return (self.q, self.k, self.v, self.g, self.beta)

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


def make_inputs(spec: InputSpec, index: int) -> OpInputs:
    """Set number `index`. Drawn in float32 on the CPU's generator, so that GPU and CPU see the same values."""
    size = dict(spec.shape)
    batch, length, heads, k_dim, v_dim = (size[axis] for axis in ("B", "T", "H", "K", "V"))
    generator = torch.Generator().manual_seed(spec.seed * 1_000_003 + index)
    dtype = getattr(torch, spec.dtype)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float32)

    def place(values: torch.Tensor, *, grad: bool = spec.requires_grad) -> torch.Tensor:
        return values.to(device=spec.device, dtype=dtype).contiguous().requires_grad_(grad)

    keys = (batch, length, heads, k_dim)
    q = torch.nn.functional.normalize(draw(*keys), dim=-1)
    k = torch.nn.functional.normalize(draw(*keys), dim=-1)
    v = draw(batch, length, heads, v_dim)
    g = -DECAY * (1 + SPREAD * draw(*keys)).clamp_min(0.0)
    beta = (GATE * (1 + SPREAD * draw(batch, length, heads))).clamp(0.0, 1.0)
    do = draw(batch, length, heads, v_dim)
    return OpInputs(place(q), place(k), place(v), place(g), place(beta), place(do, grad=False))


def sets_to_exceed(cache_bytes: int | None, set_bytes: int, *, most: int = 8) -> int:
    """How many sets it takes until the ones not in use fill the cache: each call then finds its inputs evicted."""
    if not cache_bytes or set_bytes <= 0:
        return 1
    return max(2, min(most, -(-2 * cache_bytes // set_bytes)))
