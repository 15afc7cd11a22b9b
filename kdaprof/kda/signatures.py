"""What the witnesses compare with: the kernel names that speak for each path. Pure data and text; no torch.

The counts that a path declares come from `declared`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kdaprof.kda.declared import DeclaredCounts, declared_counts

__all__ = [
    "SIGNATURES",
    "DeclaredCounts",
    "KernelTestimony",
    "PathSignature",
    "classify_kernels",
    "declared_counts",
]


@dataclass(frozen=True, slots=True)
class PathSignature:
    """How a path looks on the device."""

    path: str
    kernels: tuple[re.Pattern[str], ...]
    """Matched from the begin of a kernel's name; one match speaks for the path."""
    needs: tuple[re.Pattern[str], ...] = ()
    """Patterns that must each be seen somewhere among the names before the path is spoken for."""


@dataclass(frozen=True, slots=True)
class KernelTestimony:
    """What the kernel names of one call speak for."""

    says: str | None
    """The one path spoken for; None when the names speak for none, or for several."""
    matched: tuple[tuple[str, int], ...]
    """Distinct kernel names a path, the most telling path first."""
    detail: str

    def agrees(self, expected: str) -> bool | None:
        """Whether the names confirm `expected`; None when there was nothing to judge by."""
        return None if not self.matched else self.says == expected


def _patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text) for text in texts)


_TENSOR_LIBRARY = _patterns(
    r".*\bat(_cuda)?(::|_)",  # at::native::…, at_cuda_detail::cub::…
    r".*(gemm|gemv|cublas|cutlass|splitKreduce|nvjet)",
    r".*(trsm|trsv|triangular_solve)",
    r"(Memcpy|Memset|\[CUDA mem)",
)
_TRIANGULAR_SOLVE = re.compile(r".*(trsm|trsv|triangular_solve)", re.IGNORECASE)
_TRIANGLE = re.compile(r".*(triu_tril|tril)", re.IGNORECASE)

SIGNATURES: Final = (
    PathSignature("fused", _patterns(r"kdaprof_")),
    PathSignature("flashkda", _patterns(r".*flash_?kda", r".*FlashKDA", r".*flash_kda")),
    PathSignature(
        "fla",
        _patterns(
            r"(chunk|fused_recurrent|fused)?_?kda_",
            r"chunk_(gated_delta|delta_rule|local_cumsum|kda|gla|fwd|bwd)",
            r"recompute_w_u",
            r"prepare_wy",
            r"(solve_tril|merge_\d+x\d+_to_\d+x\d+_inverse)",
        ),
    ),
    PathSignature("compiled", _patterns(r"triton_(poi|red|per|tem|for|mm)_")),
    PathSignature("tensor", _TENSOR_LIBRARY, needs=(_TRIANGULAR_SOLVE, _TRIANGLE)),
    PathSignature("tensor-rows", _TENSOR_LIBRARY, needs=(_TRIANGLE,)),
    PathSignature("reference", _TENSOR_LIBRARY),
)
"""The most telling first: a name counts for the first path whose pattern it matches."""

_PLAIN: Final = ("tensor", "tensor-rows", "reference")
"""Paths of nothing but library kernels, told apart by what is among them, not by a name of their own."""


def classify_kernels(names: Iterable[str]) -> KernelTestimony:
    """Which path the names of one call's device events speak for.

    A name is counted for the first signature it matches, library kernels together. Kernels that belong to a path
    alone (ours, FLA's, inductor's) outweigh library kernels only where those are the path's own habit: beside
    `fused`, a triangular solve or a product means that another path ran too, and then no single path is named.
    """
    distinct = sorted(set(names))
    own: dict[str, int] = {}
    library: list[str] = []
    for name in distinct:
        path = _first_match(name)
        if path in _PLAIN:
            library.append(name)
        elif path is not None:
            own[path] = own.get(path, 0) + 1
    plain = _plain_path(library)
    matched = [(s.path, own[s.path]) for s in SIGNATURES if s.path in own]
    if plain is not None:
        matched.append((plain, len(library)))
    if not matched:
        return KernelTestimony(None, (), "no kernel that any path is known by")
    says = _verdict(own, plain, library)
    counts = ", ".join(f"{path} {n}" for path, n in matched)
    text = f"kernel names: {counts}" if says else f"kernel names of several paths: {counts}"
    return KernelTestimony(says, tuple(matched), text)


def _first_match(name: str) -> str | None:
    return next((s.path for s in SIGNATURES if any(p.match(name) for p in s.kernels)), None)


def _plain_path(library: list[str]) -> str | None:
    if not library:
        return None
    for signature in SIGNATURES:
        if signature.path in _PLAIN and all(any(p.match(n) for n in library) for p in signature.needs):
            return signature.path
    return None


def _verdict(own: dict[str, int], plain: str | None, library: list[str]) -> str | None:
    if not own:
        return plain
    if len(own) > 1:
        return None
    path = next(iter(own))
    if path == "compiled":
        return path  # inductor calls the library for products and solves
    # Fused kernels come with copies, fills and casts; a product or a triangle is another path's work.
    foreign = any(_TRIANGULAR_SOLVE.match(n) or _TRIANGLE.match(n) or _PRODUCT.match(n) for n in library)
    return None if foreign else path


_PRODUCT = re.compile(r".*(gemm|gemv|cublas|cutlass|nvjet)")
