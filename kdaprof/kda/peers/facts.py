"""What is known of each peer before it is imported: versions it was checked on, what it takes, how exact it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kdaprof.errors import UnavailableError

Band = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PeerCounts:
    """Launches and allocations of one pass, lowest and highest that agree."""

    launches: Band
    allocs: Band


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFacts:
    """One peer. `tolerance` is the relative L2 that its outputs must keep, by dtype: declared here, for it alone."""

    path: str
    distributions: tuple[str, ...]
    """Names under which it can be installed, the one that was checked first."""
    module: str
    function: str
    install: str
    """The line that installs it."""
    checked: tuple[str, ...]
    """Versions, or commits, on which the mapping of the arguments was checked."""
    dtypes: tuple[str, ...]
    trains: bool
    contexts: tuple[str, ...] | None
    """Contexts in which it can be called; None for all."""
    only_k_v: int | None
    """The one K = V that its kernels exist for; None where they are general."""
    tolerance: Mapping[str, float]
    rates: Mapping[str, str]
    """Name of the ceiling whose instruction its products use, by dtype."""
    source: str
    counts: Mapping[str, PeerCounts] = field(default_factory=dict)
    """By pass (`fwd`, `bwd`), for the checked versions alone."""
    op: str = "kda"
    """The workload that it computes."""


FLA: Final = PeerFacts(
    path="fla",
    distributions=("fla-core", "flash-linear-attention"),
    module="fla.ops.kda",
    function="chunk_kda",
    install="pip install 'kdaprof[peers]'",
    checked=("0.6.0",),
    dtypes=("float32", "bfloat16", "float16"),
    trains=True,
    contexts=None,
    only_k_v=None,
    # It multiplies float32 in one tf32 pass (unit 4.9e-4 a product, several in a row), half precision as it comes.
    tolerance={"float32": 1e-2, "bfloat16": 2e-2, "float16": 2e-2},
    rates={"float32": "matmul_tf32", "bfloat16": "matmul_bfloat16", "float16": "matmul_float16"},
    source="https://github.com/fla-org/flash-linear-attention",
    # Seen on an H200 with 0.6.0: 9 launches and 11 allocations forward, 19 and 34 with backward; half as much either
    # way is left for shapes that take other kernels. A tensor path needs hundreds.
    counts={
        "fwd": PeerCounts(launches=(5, 14), allocs=(5, 17)),
        "bwd": PeerCounts(launches=(5, 15), allocs=(11, 35)),
    },
)

FLASHKDA: Final = PeerFacts(
    path="flashkda",
    distributions=("flash-kda", "flash_kda"),
    module="flash_kda",
    function="fwd",
    install="git clone https://github.com/MoonshotAI/FlashKDA && pip install --no-build-isolation ./FlashKDA",
    checked=(),  # from its public documentation and source; no build of it has run under kdaprof yet
    dtypes=("bfloat16",),
    trains=False,
    contexts=("plain", "no_grad", "inference"),
    only_k_v=128,
    tolerance={"bfloat16": 2e-2},
    rates={"bfloat16": "matmul_bfloat16"},
    source="https://github.com/MoonshotAI/FlashKDA",
)

PEERS: Final[Mapping[str, PeerFacts]] = {facts.path: facts for facts in (FLA, FLASHKDA)}
"""Every peer of KDA by the path's name."""

_FLA_OPS: Final = {
    "gdn": ("fla.ops.gated_delta_rule", "chunk_gated_delta_rule"),
    "gdn2": ("fla.ops.gdn2", "chunk_gdn2"),
    "precond_kda": ("fla.ops.precond_kda", "chunk_precond_kda"),
}
"""Module and function of KDA's relatives."""


def facts_of(path: str, op: str = "kda") -> PeerFacts:
    """What is known of the peer `path` for the workload `op`.

    Errors: UnavailableError when that peer does not compute it.
    """
    if op == "kda":
        return PEERS[path]
    if path != "fla" or op not in _FLA_OPS:
        raise UnavailableError(f"path {path!r} does not compute {op}")
    module, function = _FLA_OPS[op]
    # Its counts were seen of `chunk_kda` alone.
    return replace(FLA, module=module, function=function, counts={}, op=op)


def installed_version(distributions: tuple[str, ...]) -> str | None:
    """The version of the first of these distributions that is installed, or None. Imports nothing of it."""
    from importlib import metadata  # noqa: PLC0415  `--help` reads these facts, and needs no versions

    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def peer_tolerance(path: str, dtype: str) -> float | None:
    """The relative L2 that a peer's outputs must keep in `dtype`; None for paths that are not peers."""
    facts = PEERS.get(path)
    return None if facts is None else facts.tolerance.get(dtype)
