"""What the witnesses compare with: the kernel names that speak for each path. Pure data and text; no torch.

Which path the names of a call speak for is judged by `kdaprof.analysis.evidence`, from these patterns as the run
stores them. The counts that a path declares come from `declared`.
"""

from __future__ import annotations

from typing import Final

from kdaprof.runs.record import PathSignature


def _patterns(*texts: str) -> tuple[str, ...]:
    """Anchored at a name's begin: they are searched for."""
    return tuple(f"^(?:{text})" for text in texts)


_SOLVE: Final = r"(trsm|trsv|triangular_solve)"
_TRIANGLE: Final = r"(triu_tril|tril_|_tril)"
_PRODUCT: Final = r"(gemm|gemv|cublas|cutlass|splitKreduce|nvjet)"
_LIBRARY: Final = (r".*\bat(_cuda)?(::|_)", rf".*{_PRODUCT}", r"\[?(CUDA )?(Memcpy|Memset|mem(cpy|set))")


def _library(*without: str) -> tuple[str, ...]:
    """Torch's own kernels, without those that a path never runs."""
    never = "".join(f"(?!.*{text})" for text in without)
    return _patterns(*(never + text for text in _LIBRARY))


SIGNATURES: Final = (
    PathSignature(path="fused", patterns=_patterns(r"kdaprof_")),
    PathSignature(path="flashkda", patterns=_patterns(r".*flash_?kda", r".*FlashKDA")),
    PathSignature(
        path="fla",
        patterns=_patterns(
            r"(chunk|fused_recurrent|fused)?_?kda_",
            r"chunk_(gated_delta|delta_rule|local_cumsum|kda|gla|fwd|bwd|gdn2|precond_kda|atk)",
            r"recompute_w_u",
            r"prepare_wy",
            r"(solve_tril|merge_\d+x\d+_to_\d+x\d+_inverse)",
        ),
    ),
    PathSignature(path="compiled", patterns=_patterns(r"triton_(poi|red|per|tem|for|mm)_")),
    PathSignature(path="tensor", patterns=(*_patterns(rf".*{_SOLVE}"), *_library())),
    PathSignature(path="tensor-rows", patterns=_library(_SOLVE)),
    PathSignature(path="reference", patterns=_library(_SOLVE, _TRIANGLE)),
)
"""The most telling first: a name counts for the first path whose pattern it matches."""
