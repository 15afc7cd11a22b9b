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
    """Matched from the begin of a kernel's name. Library kernels belong to several paths; what one of these paths
    has and another has not is left out of the other's patterns."""


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


_SOLVE: Final = r"(trsm|trsv|triangular_solve)"
_TRIANGLE: Final = r"(triu_tril|tril_|_tril)"
_PRODUCT: Final = r"(gemm|gemv|cublas|cutlass|splitKreduce|nvjet)"
_LIBRARY: Final = (r".*\bat(_cuda)?(::|_)", rf".*{_PRODUCT}", r"\[?(CUDA )?(Memcpy|Memset|mem(cpy|set))")


def _library(*without: str) -> tuple[re.Pattern[str], ...]:
    """Torch's own kernels, without those that a path never runs."""
    never = "".join(f"(?!.*{text})" for text in without)
    return _patterns(*(never + text for text in _LIBRARY))


SIGNATURES: Final = (
    PathSignature("fused", _patterns(r"kdaprof_")),
    PathSignature("flashkda", _patterns(r".*flash_?kda", r".*FlashKDA")),
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
    PathSignature("tensor", (*_patterns(rf".*{_SOLVE}"), *_library())),
    PathSignature("tensor-rows", _library(_SOLVE)),
    PathSignature("reference", _library(_SOLVE, _TRIANGLE)),
)
"""The most telling first: a name counts for the first path whose pattern it matches."""

_PLAIN: Final = ("tensor", "tensor-rows", "reference")
"""Paths of nothing but library kernels, told apart by what is among them, not by a name of their own."""


def classify_kernels(names: Iterable[str]) -> KernelTestimony:
    """Which path the names of one call's device events speak for.

    A name that belongs to one path (ours, FLA's, inductor's) counts for it. Library kernels speak where there is
    nothing else: a triangular solve for `tensor`, else a triangle for `tensor-rows`, else for `reference`. Beside
    `fused`, a product, a solve or a triangle means that another path ran as well: then no path is named. Inductor
    calls the library itself.
    """
    own: dict[str, int] = {}
    library: list[str] = []
    for name in sorted(set(names)):
        path = next((s.path for s in SIGNATURES if any(p.match(name) for p in s.kernels)), None)
        if path in _PLAIN:
            library.append(name)
        elif path is not None:
            own[path] = own.get(path, 0) + 1
    matched = [(s.path, own[s.path]) for s in SIGNATURES if s.path in own]
    plain = _plain_path(library)
    if plain is not None:
        matched.append((plain, len(library)))
    if not matched:
        return KernelTestimony(None, (), "no kernel that any path is known by")
    says = _verdict(own, plain, library)
    counts = ", ".join(f"{path} {n}" for path, n in matched)
    text = f"kernel names: {counts}" if says else f"kernel names of several paths: {counts}"
    return KernelTestimony(says, tuple(matched), text)


def _seen(pattern: str, names: Iterable[str]) -> bool:
    return any(re.search(pattern, name) for name in names)


def _plain_path(library: list[str]) -> str | None:
    if not library:
        return None
    if _seen(_SOLVE, library):
        return "tensor"
    return "tensor-rows" if _seen(_TRIANGLE, library) else "reference"


def _verdict(own: dict[str, int], plain: str | None, library: list[str]) -> str | None:
    if not own:
        return plain
    if len(own) > 1:
        return None
    path = next(iter(own))
    # Our kernels come with copies, fills and casts of the library's; products and triangles are another path's work.
    mixed = path != "compiled" and any(_seen(p, library) for p in (_SOLVE, _TRIANGLE, _PRODUCT))
    return None if mixed else path
