"""A path's own memory traffic: every tensor that it writes to memory and reads back, listed.

A basis of its own beside the compulsory bytes, and larger: it says what this way of computing must move, not what
the op must. Each listing counts a tensor once for each kernel that reads or writes it whole; what a kernel reads
again in other blocks comes out of the cache and is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from kdaprof.kda.cost import OpSize, Tensor, compulsory, flops, moved_bytes
from kdaprof.kda.peers import PEERS
from kdaprof.runs.record import Work


@dataclass(frozen=True, slots=True)
class Traffic:
    """A listing, or None and why there is none."""

    tensors: tuple[Tensor, ...] | None
    why: str | None = None

    @property
    def bytes(self) -> int | None:
        """Bytes moved, None without a listing."""
        return None if self.tensors is None else moved_bytes(self.tensors)


def path_traffic(path: str, phase: str, size: OpSize, dtype: str) -> Traffic:
    """What `path` moves in one call of `phase`, without states in or out."""
    if path == "fused":
        if phase == "fwdbwd":
            return Traffic(_fused_forward(size, dtype) + _fused_backward(size, dtype))
        return Traffic(_fused_forward(size, dtype) if phase == "fwd" else _fused_backward(size, dtype))
    if path in ("tensor", "tensor-rows"):
        if phase != "fwd":
            return Traffic(None, "autograd decides what the backward of the tensor path saves and copies")
        return Traffic(_tensor_forward(size, dtype, rows=path == "tensor-rows"))
    if path == "compiled":
        return Traffic(None, "inductor decides which intermediates reach memory")
    return Traffic(None, f"path {path} has no listing of its tensors")


def field_report_tensors(size: OpSize) -> tuple[Tensor, ...]:
    """The field report's listing of a float32 forward (GDN-2: b and w a channel), one way; it then doubles the sum.

    Its line of nine named scratch tensors carries ten tensors' bytes (157 MB where nine make 141.6); the tenth is
    listed as what it is, so that the listing adds up to the report's 346 MB.
    """
    key, value = (size.B, size.T, size.H, size.K), (size.B, size.T, size.H, size.V)
    state, small = (size.B, size.H, size.K, size.V), (size.chunks, size.C, size.C)
    scratch = ("gexp", "kgt", "qgt", "bkt", "w", "kgd", "u", "wvt", "v_new", "(a tenth, counted but not named)")
    return (
        *(Tensor(name, key, "float32", reads=1) for name in ("q", "k", "g", "b")),
        *(Tensor(name, value, "float32", reads=1) for name in ("v", "w gate")),
        *(Tensor(name, state, "float32", reads=1) for name in ("state, copy 1", "state, copy 2")),
        *(Tensor(name, (size.chunks, size.C, size.K), "float32", writes=1) for name in scratch),
        *(Tensor(name, small, "float32", writes=1) for name in ("aqk", "akk", "m_inv")),
        Tensor("out", value, "float32", writes=1),
        Tensor("states", (size.chunks, size.K, size.V), "float32", writes=1),
    )


def field_report_bytes(size: OpSize) -> int:
    """The field report's 692 MB at the production shape: its one-way listing, times 2 for reading back."""
    return 2 * moved_bytes(field_report_tensors(size))


def rate_name(path: str, dtype: str, precision: str = "tf32x3") -> str:
    """Name of the ceiling whose instruction the path's products use.

    The tensor paths multiply in float32 (float64 for float64) whatever comes in; the fused kernels use tf32 units,
    three passes for float32 inputs unless `precision` says otherwise, one for bfloat16 and float16. A peer's own facts
    name its instruction.
    """
    if path in PEERS:
        return PEERS[path].rates.get(dtype, f"matmul_{dtype}")
    if path != "fused":
        return "matmul_float64" if dtype == "float64" else "matmul_float32"
    if precision == "ieee":
        return "matmul_float32"
    return f"matmul_{precision}" if dtype == "float32" else "matmul_tf32"


def work(path: str, phase: str, size: OpSize, dtype: str, *, precision: str = "tf32x3") -> Work:
    """Operations and bytes of one call of a cell, each byte basis apart. Unknown phases: UsageError."""
    return Work(
        flops=flops(phase, size),
        bytes_compulsory=moved_bytes(compulsory(phase, size, dtype)),
        bytes_path=path_traffic(path, phase, size, dtype).bytes,
        rate=rate_name(path, dtype, precision),
    )


def _chunked(size: OpSize, shapes: dict[str, tuple[tuple[int, ...], int, int]]) -> tuple[Tensor, ...]:
    """Float32 tensors of one entry a chunk: by name the entry's shape, how often it is read, and written."""
    return tuple(
        Tensor(name, (size.chunks, *shape), "float32", reads=reads, writes=writes)
        for name, (shape, reads, writes) in shapes.items()
    )


def _fused_forward(size: OpSize, dtype: str) -> tuple[Tensor, ...]:
    # Two kernels: the records from q, k, g, beta; the recurrence, which keeps V' for the backward.
    key, value, square = (size.C, size.K), (size.C, size.V), (size.C, size.C)
    return (
        *compulsory("fwd", size, dtype),
        *(Tensor(f"{name}, again", (size.B, size.T, size.H, size.K), dtype, reads=1) for name in ("q", "k")),
        Tensor("beta, again", (size.B, size.T, size.H), dtype, reads=1),
        *_chunked(size, {
            "exp G": (key, 1, 1), "k exp(G_C − G)": (key, 1, 1), "P": (square, 1, 1), "A": (square, 1, 1),
            "V'": (value, 0, 1),
        }),
    )  # fmt: skip


def _states_at_home(size: OpSize, dtype: str) -> bool:
    """Whether the backward keeps states of every second chunk alone: `fused.sizes.at_home` without torch."""
    return dtype == "float32" and size.K == size.V and size.K in (16, 32, 64) and size.T % (2 * size.C) == 0


def _fused_backward(size: OpSize, dtype: str) -> tuple[Tensor, ...]:
    # Three kernels, from the records that the forward kept: both recurrences in one launch (q, k, beta, dO), products
    # with the states (v, beta, dO), pairs (q, k, g, beta). The sums through the state wait in dq, dk, dg (half
    # precision: in the gradient records) for the last.
    C, K, V = size.C, size.K, size.V
    key, value, square = (C, K), (C, V), (C, C)
    home = _states_at_home(size, dtype)
    # With every second state alone, the products bring q, k, exp G and k exp(G_C − G) to the chunks between.
    again = {"q": 1 + home, "k": 1 + home, "beta": 2, "do": 1}
    states = (size.chunks // 2 if home else size.chunks, K, V)
    return (
        *compulsory("bwd", size, dtype),
        *(
            Tensor(f"{t.name}, again", t.shape, t.dtype, reads=again[t.name])
            for t in compulsory("bwd", size, dtype)
            if t.name in again
        ),
        *_chunked(size, {
            "exp G": (key, 1 + home, 0), "k exp(G_C − G)": (key, 1 + home, 0), "V'": (value, 2, 0), "P": (square, 1, 0),
            "A": (square, 1, 0), "X": (value, 1, 1), "through S, q": (key, 1, 1), "through S, k": (key, 1, 1),
            "through S, y": (key, 1, 1), "dP": (square, 1, 1), "dL": (square, 1, 1), "sum of S dS": ((K,), 1, 1),
            "sum of X v": ((C,), 1, 1),
        }),
        *(Tensor(name, states, "float32", reads=1, writes=1) for name in ("S", "dS")),
    )  # fmt: skip


def _tensor_forward(size: OpSize, dtype: str, *, rows: bool) -> tuple[Tensor, ...]:
    # In the order of the operations of `kda/tensor.py` for one block a chunk (C ≤ 16). Each tensor is written by the
    # operation that makes it and read by those that take it; the float32 copy of half-precision inputs is folded
    # into the split that follows it.
    C, K, V = size.C, size.K, size.V
    acc = "float64" if dtype == "float64" else "float32"
    n = size.chunks

    def made(name: str, *shape: int, reads: int = 1) -> Tensor:
        return Tensor(name, (n, *shape), acc, reads=reads, writes=1)

    prepared = (
        made("g, split", C, K),
        made("G", C, K, reads=4),
        made("k, split", C, K, reads=3),
        made("beta, split", C, 1, reads=2),
        made("beta k", C, K, reads=2),
        made("q, split", C, K),
        made("scale q", C, K, reads=2),
        made("G − anchor", C, K),
        made("exp(G − anchor)", C, K, reads=2),
        made("anchor − G", C, K),
        made("exp(anchor − G)", C, K),
        made("k exp(anchor − G)", C, K, reads=2),
        made("q exp(G − anchor)", C, K),
        made("beta k exp(G − anchor)", C, K),
        made("P, full", C, C),
        made("L, full", C, C),
        made("P", C, C),
        made("L", C, C),
        made("exp G", C, K, reads=2),
        made("scale q exp G", C, K),
        made("G_C − G", C, K),
        made("exp(G_C − G)", C, K),
        made("k exp(G_C − G)", C, K),
        made("beta k exp G", C, K),
        made("v, split", C, V),
        made("beta v", C, V),
        made("right-hand sides", C, K + V),
        made("U and W", C, K + V),
    )
    inverse = (
        # Row i of A costs the product with the i rows so far, the difference, and a copy of all i + 1 rows.
        (
            made("A, row products", C - 1, C),
            made("A, new rows", C - 1, C),
            Tensor("A, rows so far", (n, C * (C - 1) // 2, C), acc, reads=2),
            Tensor("A, copies", (n, C * (C + 1) // 2 - 1, C), acc, writes=1),
            Tensor("A", (n, C, C), acc, reads=1),
        )
        if rows
        else ()
    )
    loop = (
        made("W S", C, V),
        made("V'", C, V, reads=2),
        made("scale q exp G S", C, V),
        made("P V'", C, V),
        made("O of the chunk", C, V),
        made("S decayed", K, V),
        made("Kᵀ V'", K, V),
        made("S", K, V, reads=3),
        made("O stacked", C, V),
    )
    return compulsory("fwd", size, dtype) + prepared + inverse + loop
