"""What one call of the op costs on paper: floating-point operations by product, compulsory bytes by tensor.

Operations are those of the chunk form of `KDA.md` at chunk length C: matrix products count 2 m n k, the inverse of
the C × C triangle C³ (4,096 for C = 16); element-wise work is not counted. A last chunk that is not full counts
as full, since every path computes it so. Nothing here imports torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kdaprof.errors import UsageError
from kdaprof.runs.cells import DTYPE_BYTES

Shape = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class OpSize:
    """Sizes of one call: batch, tokens, heads, key and value channels, chunk length."""

    B: int
    T: int
    H: int
    K: int
    V: int
    C: int = 16

    @classmethod
    def of(cls, shape: Shape) -> OpSize:
        """The size of a cell's shape (axes B, T, H, K, V, C); KeyError when an axis is absent."""
        axes = dict(shape)
        return cls(*(axes[name] for name in ("B", "T", "H", "K", "V", "C")))

    @property
    def chunks(self) -> int:
        """Chunks of all sequences and heads, the last of a sequence counted as full."""
        return self.B * self.H * math.ceil(self.T / self.C)

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return self.B * self.T


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product [m, k] · [k, n] of every chunk; `flops` is for one chunk."""

    name: str
    m: int
    k: int
    n: int

    @property
    def flops(self) -> int:
        """A multiplication and an addition each: 2 m k n."""
        return 2 * self.m * self.k * self.n


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor that moves between memory and chip: `reads` and `writes` are how often it does so whole."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    reads: int = 0
    writes: int = 0

    @property
    def bytes(self) -> int:
        """Size of the tensor."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]

    @property
    def moved_bytes(self) -> int:
        """Bytes that it moves: its size by reads + writes."""
        return self.bytes * (self.reads + self.writes)


def moved_bytes(tensors: tuple[Tensor, ...]) -> int:
    """Sum over a listing."""
    return sum(tensor.moved_bytes for tensor in tensors)


def forward_products(size: OpSize) -> tuple[Product, ...]:
    """The products of one chunk's forward, beside the inverse (`inverse_flops`)."""
    C, K, V = size.C, size.K, size.V
    return (
        Product("P = scale (Q exp G)(K / exp G)ᵀ", C, K, C),
        Product("L = (β K exp G)(K / exp G)ᵀ", C, K, C),
        Product("W = A (β K exp G)", C, C, K),
        Product("U = A (β V)", C, C, V),
        Product("V' = U − W S", C, K, V),
        Product("O += P V'", C, C, V),
        Product("O += scale (Q exp G) S", C, K, V),
        Product("S += (K exp(G_C − G))ᵀ V'", K, C, V),
    )


def backward_products(size: OpSize) -> tuple[Product, ...]:
    """The products of one chunk's backward as `KDA.md` lists them; what a path recomputes is not among them."""
    C, K, V = size.C, size.K, size.V
    return (
        Product("dP = scale (dO V'ᵀ)", C, V, C),
        Product("dV' += Pᵀ dO", C, C, V),
        Product("dV' += (K exp(G_C − G)) dS", C, K, V),
        Product("dW = −dV' Sᵀ", C, V, K),
        Product("X = Aᵀ dV'", C, C, V),
        Product("Y = Aᵀ dW", C, C, K),
        Product("dV' (β V)ᵀ", C, V, C),
        Product("dW (β K exp G)ᵀ", C, K, C),
        Product("Aᵀ […]", C, C, C),
        Product("[…] Aᵀ", C, C, C),
        Product("R = dL K", C, C, K),
        Product("Col += dPᵀ Q", C, C, K),
        Product("Col += dLᵀ β K", C, C, K),
        Product("dq += dP K", C, C, K),
        Product("dq += scale dO Sᵀ", C, V, K),
        Product("dk += V' dSᵀ", C, V, K),
        Product("dS += scale (Q exp G)ᵀ dO", K, C, V),
        Product("dS −= Wᵀ dV'", K, C, V),
    )


def inverse_flops(chunk: int) -> int:
    """(I + L)^-1 of one C × C triangle: C³."""
    return chunk**3


def flops(phase: str, size: OpSize) -> int:
    """Operations of one call: `fwd`, `bwd` (without recomputation) or `fwdbwd`. Other phases: UsageError."""
    forward = sum(p.flops for p in forward_products(size)) + inverse_flops(size.C)
    backward = sum(p.flops for p in backward_products(size))
    per_chunk = {"fwd": forward, "bwd": backward, "fwdbwd": forward + backward}.get(phase)
    if per_chunk is None:
        raise UsageError(f"phase {phase!r} of the op is unknown; known: fwd, bwd, fwdbwd")
    return size.chunks * per_chunk


def field_flops_per_token_head(chunk: int, dim: int) -> int:
    """The field report's own model for K = V = D: 8 C D + 2 C² + 6 D², without the products P V' and the inverse."""
    return 8 * chunk * dim + 2 * chunk**2 + 6 * dim**2


def compulsory(
    phase: str, size: OpSize, dtype: str, *, initial_state: bool = False, final_state: bool = False
) -> tuple[Tensor, ...]:
    """Inputs and outputs of one call, each moved once; states are float32 (float64 for float64 inputs).

    The phases of `fwdbwd` are listed one after the other: the gradient of the output arrives between them, so
    inputs larger than the cache move twice. Other phases: UsageError.
    """
    if phase == "fwdbwd":
        return tuple(
            tensor
            for part in ("fwd", "bwd")
            for tensor in compulsory(part, size, dtype, initial_state=initial_state, final_state=final_state)
        )
    if phase not in ("fwd", "bwd"):
        raise UsageError(f"phase {phase!r} of the op is unknown; known: fwd, bwd, fwdbwd")
    state_dtype = "float64" if dtype == "float64" else "float32"
    key, value = (size.B, size.T, size.H, size.K), (size.B, size.T, size.H, size.V)
    state = (size.B, size.H, size.K, size.V)
    inputs = [("q", key), ("k", key), ("v", value), ("g", key), ("beta", (size.B, size.T, size.H))]
    listed = [Tensor(name, shape, dtype, reads=1) for name, shape in inputs]
    if initial_state:
        listed.append(Tensor("initial_state", state, state_dtype, reads=1))
    if phase == "fwd":
        listed.append(Tensor("o", value, dtype, writes=1))
        if final_state:
            listed.append(Tensor("final_state", state, state_dtype, writes=1))
        return tuple(listed)
    listed.append(Tensor("do", value, dtype, reads=1))
    if final_state:
        listed.append(Tensor("dfinal_state", state, state_dtype, reads=1))
    listed += [Tensor(f"d{name}", shape, dtype, writes=1) for name, shape in inputs]
    if initial_state:
        listed.append(Tensor("dinitial_state", state, state_dtype, writes=1))
    return tuple(listed)


@dataclass(frozen=True, slots=True)
class SerialChain:
    """The dependent chain: `programs` that can run at once, each `steps` chunks one after the other."""

    programs: int
    steps: int


def serial_chain(size: OpSize, v_block: int | None = None) -> SerialChain:
    """Programs of the recurrence, one a sequence, head and block of `v_block` value channels (None: all of V)."""
    blocks = math.ceil(size.V / v_block) if v_block else 1
    return SerialChain(programs=size.B * size.H * blocks, steps=math.ceil(size.T / size.C))
