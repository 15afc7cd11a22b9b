"""Launches and allocations that each path declares for a call before it runs: the third witness.

The chunked paths follow from their code: so many operations a chunk, a block of 16 rows and a row of the triangle.
The constants are counted (tests count them again), with what CUDA adds to an operation: two launches where an
operation fills and copies, about four for a batched triangular solve. At 32 chunks of 16, float32, they give for
`tensor` 292 launches forward and 1,393 with backward, where an H200 shows 287 and 1,379 for a path of this form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

from kdaprof.kda.peers import PEERS, PeerFacts
from kdaprof.kda.peers.facts import installed_version
from kdaprof.runs.record import DeclaredCounts

Band = tuple[int, int]
"""Lowest and highest count that agrees, both included."""


class Extents(Protocol):
    """What a law needs of a shape; `shapes.OpShape` is one."""

    @property
    def B(self) -> int:
        """Batch."""
        ...

    @property
    def T(self) -> int:
        """Tokens."""
        ...


@dataclass(frozen=True, slots=True)
class _Count:
    """Launches and allocations, as the sum of what the parts of a path need."""

    launches: float
    allocs: float

    def __add__(self, other: _Count) -> _Count:
        return _Count(self.launches + other.launches, self.allocs + other.allocs)

    def __mul__(self, times: float) -> _Count:
        return _Count(self.launches * times, self.allocs * times)


@dataclass(frozen=True, slots=True)
class _Law:
    """Counts of one phase of a chunked path."""

    fixed: _Count
    chunk: _Count
    """A chunk of the loop."""
    block: _Count
    """Each block of 16 rows of a chunk beyond the first."""
    blocks: _Count
    """Once when a chunk has several blocks."""
    row: _Count
    """Each row of the triangle beyond the first (`tensor-rows`)."""
    tail: _Count
    """When the last chunk is padded."""
    half: _Count
    """When inputs are bfloat16 or float16: casts."""

    def at(self, chunks: int, chunk: int, *, padded: bool, half: bool) -> _Count:
        blocks = math.ceil(chunk / _BLOCK)
        total = self.fixed + self.chunk * chunks + self.block * (blocks - 1) + self.row * (chunk - 1)
        total += self.blocks * (blocks > 1)
        return total + self.tail * padded + self.half * half


_BLOCK: Final = 16
_NONE: Final = _Count(0, 0)

_TENSOR_FWD: Final = _Law(
    fixed=_Count(36, 33),
    chunk=_Count(8, 8),
    block=_Count(13, 11),
    blocks=_Count(2, 2),
    row=_NONE,
    tail=_Count(10, 5),
    half=_Count(6, 6),
)
_TENSOR_BWD: Final = _Law(
    fixed=_Count(45, 40),
    chunk=_Count(33, 19),
    block=_Count(41, 25),
    blocks=_Count(6, 3),
    row=_NONE,
    tail=_Count(12, 6),
    half=_Count(6, 6),
)
_ROWS_FWD: Final = _Law(
    fixed=_Count(35, 34),
    chunk=_Count(8, 8),
    block=_Count(13, 11),
    blocks=_Count(2, 2),
    row=_Count(3, 3),
    tail=_Count(10, 5),
    half=_Count(6, 6),
)
_ROWS_BWD: Final = _Law(
    fixed=_Count(36, 35),
    chunk=_Count(33, 19),
    block=_Count(41, 25),
    blocks=_Count(6, 3),
    row=_Count(9, 6),
    tail=_Count(12, 6),
    half=_Count(6, 6),
)
_LAWS: Final = {
    "tensor": {"fwd": _TENSOR_FWD, "bwd": _TENSOR_BWD},
    "tensor-rows": {"fwd": _ROWS_FWD, "bwd": _ROWS_BWD},
}

_SINGLE_ROW: Final = _Count(1, 0)
"""cuBLAS sums the product of one row with several in a second kernel: each row of the substitution but the first.
Seen on an H200, where the forward pass takes 350 launches; no operation of torch shows it."""

_HALF: Final = ("bfloat16", "float16")

SLACK: Final = 0.04
"""Share by which torch versions differ: which operation copies, which cat is split."""

SLACK_FLOOR: Final = 10
"""The same for short calls, in launches or allocations."""

COMPILED_SLACK: Final = (0.35, 1.0)
"""Launches and allocations: the compiler decides what to fuse and what to reuse, differently in each version."""


def declared_counts(
    path: str, phase: str, shape: Extents, chunk: int, dtype: str, *, context: str = "plain"
) -> DeclaredCounts | None:
    """The counts of one KDA call, or None when nothing is declared for it.

    `phase` is `fwd`, `bwd` or `fwdbwd`; `dtype` torch's name, of q, k, v, g and beta alike. A backward gives the
    gradients of all five, returned (`torch.autograd.grad`), not accumulated. `context` is one of `CONTEXTS`: in the
    checkpointed ones the backward runs the forward again. Nothing is declared for other contexts, an empty batch,
    and versions of a peer that were not checked.
    """
    phases = _phases(phase, context)
    if phases is None or shape.B < 1 or shape.T < 1:
        return None
    half = dtype in _HALF
    chunks = math.ceil(shape.T / chunk)
    if path == "fused":
        return _fused(phases)
    if path == "compiled":
        return _compiled(phases, chunks)
    if path in PEERS:
        return _peer(PEERS[path], phases)
    total = _NONE
    for part in phases:
        if path == "reference":
            total += _reference(part, shape.T, half=half)
        elif path in _LAWS:
            total += _LAWS[path][part].at(chunks, chunk, padded=shape.T % chunk != 0, half=half)
            if (path, part) == ("tensor-rows", "fwd"):
                total += _SINGLE_ROW * max(0, chunk - 2)
        else:
            return None
    return DeclaredCounts(launches=_around(total.launches, SLACK), allocs=_around(total.allocs, SLACK))


CONTEXTS: Final = ("plain", "no_grad", "inference", "autocast", "checkpoint", "checkpoint-reentrant")
"""Contexts in which a path launches what it launches plainly, once or again."""


def _phases(phase: str, context: str) -> tuple[str, ...] | None:
    """The passes that really run, in order; None when the law does not know."""
    passes = {"fwd": ("fwd",), "bwd": ("bwd",), "fwdbwd": ("fwd", "bwd")}.get(phase)
    if passes is None or context not in CONTEXTS:
        return None
    if context.startswith("checkpoint") and "bwd" in passes:
        return (*passes[:-1], "fwd", "bwd")
    return passes


def _around(count: float, slack: float) -> Band:
    room = max(SLACK_FLOOR, count * slack)
    return max(0, math.floor(count - room)), math.ceil(count + room)


def _reference(phase: str, tokens: int, *, half: bool) -> _Count:
    casts = _Count(7, 7) * half
    if phase == "fwd":
        return _Count(8, 8) + _Count(6, 6) * tokens + casts
    return _Count(13, 14) + _Count(14, 12) * tokens + casts


def _compiled(phases: tuple[str, ...], chunks: int) -> DeclaredCounts:
    """Around what torch 2.11 makes of it on an H200 at 32 chunks: 236 and 78 forward, 607 and 279 with backward.

    Of the allocations only the upper end is declared: a forward that saves nothing for a backward takes 18.
    """
    total = _NONE
    for part in phases:
        total += _Count(12, 14) + _Count(7, 2) * chunks if part == "fwd" else _Count(3, 9) + _Count(11.5, 6) * chunks
    most = _around(total.allocs, COMPILED_SLACK[1])[1]
    return DeclaredCounts(launches=_around(total.launches, COMPILED_SLACK[0]), allocs=(1, most))


def _fused(phases: tuple[str, ...]) -> DeclaredCounts | None:
    """What the kernels' own package declares; the final state and the initial state's gradient take one more each."""
    try:
        from kdaprof.kda import fused  # noqa: PLC0415  it imports torch, and this module does not
    except ImportError:
        return None
    launches = sum(fused.LAUNCHES[part] for part in phases)
    allocs = sum(fused.ALLOCS[part] for part in phases)
    return DeclaredCounts(launches=(launches, launches), allocs=(allocs, allocs + len(phases)))


def _peer(facts: PeerFacts, phases: tuple[str, ...]) -> DeclaredCounts | None:
    """What a checked version of a peer was seen to need; another version may launch anything."""
    parts = [facts.counts[part] for part in phases if part in facts.counts]
    if len(parts) < len(phases) or installed_version(facts.distributions) not in facts.checked:
        return None
    return DeclaredCounts(
        launches=(sum(p.launches[0] for p in parts), sum(p.launches[1] for p in parts)),
        allocs=(sum(p.allocs[0] for p in parts), sum(p.allocs[1] for p in parts)),
    )
