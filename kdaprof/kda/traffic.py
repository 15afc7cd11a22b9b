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


def _records(size: OpSize, *, reads: dict[str, int], writes: int) -> tuple[Tensor, ...]:
    """The fused path's records, float32, one a chunk; `reads` says how often each is read."""
    C, K = size.C, size.K
    shapes = {
        "W": (C, K), "scale q exp G": (C, K), "k exp(G_C − G)": (C, K), "P": (C, C), "A": (C, C), "exp G_C": (K,),
        "beta, float32": (C,),
    }  # fmt: skip
    return tuple(
        Tensor(name, (size.chunks, *shape), "float32", reads=reads.get(name, 1), writes=writes)
        for name, shape in shapes.items()
    )


def _fused_forward(size: OpSize, dtype: str) -> tuple[Tensor, ...]:
    return compulsory("fwd", size, dtype) + _records(size, reads={}, writes=1)


def _fused_backward(size: OpSize, dtype: str) -> tuple[Tensor, ...]:
    # Three kernels, from the records that the forward kept: both recurrences in one launch, products with the states,
    # pairs. v and dO are read by the first two; the sums through the state wait in dq, dk, dg (float32) for the last.
    C, K, V = size.C, size.K, size.V
    again = tuple(
        Tensor(f"{t.name}, again", t.shape, t.dtype, reads=1)
        for t in compulsory("bwd", size, dtype)
        if t.reads and t.name in ("v", "do")
    )
    twice = {"W": 2, "k exp(G_C − G)": 2, "exp G_C": 2}
    sums = {"through S, q": (C, K), "through S, k": (C, K), "through S, y": (C, K), "dP": (C, C), "dL": (C, C)}
    if dtype == "float32" and K == V <= 4 * C and size.T % (2 * C) == 0:
        # States of every second chunk alone; what lies between is made again.
        records = _records(size, reads={"scale q exp G": 2, "P": 2, "A": 2, **dict.fromkeys(twice, 3)}, writes=0)
        kept = tuple(Tensor(n, (size.chunks // 2, K, V), "float32", reads=1, writes=1) for n in ("S", "dS"))
    else:
        records = _records(size, reads={"A": 2, **twice}, writes=0)
        shapes = {"S": (K, V), "dS": (K, V), "V'": (C, V), "X": (C, V)}
        kept = tuple(Tensor(n, (size.chunks, *s), "float32", reads=1, writes=1) for n, s in shapes.items())
    return (
        *compulsory("bwd", size, dtype),
        *again,
        *records,
        *kept,
        *(Tensor(n, (size.chunks, *s), "float32", reads=1, writes=1) for n, s in sums.items()),
    )


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
