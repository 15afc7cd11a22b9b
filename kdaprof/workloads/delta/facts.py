"""What is known of each relative before torch is imported: its arguments, its paths, the sizes of a set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kdaprof.runs.cells import DTYPE_BYTES, OWN_PATHS, CellKey

Extent = Literal["heads", "keys", "values"]
"""[B, T, H], [B, T, H, K], [B, T, H, V]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaOp:
    """One op: `arguments` by name in its order, each with its extent."""

    workload: str
    arguments: tuple[tuple[str, Extent], ...]
    paths: tuple[str, ...]
    default_paths: str
    """As `--paths` takes them."""


_QKV: Final[tuple[tuple[str, Extent], ...]] = (("q", "keys"), ("k", "keys"), ("v", "values"))

DELTA: Final = {
    op.workload: op
    for op in (
        DeltaOp(
            workload="gdn",
            arguments=(*_QKV, ("g", "heads"), ("beta", "heads")),
            paths=(*OWN_PATHS, "fla"),
            default_paths="tensor,fla",
        ),
        DeltaOp(
            workload="gdn2",
            arguments=(*_QKV, ("g", "keys"), ("b", "keys"), ("w", "values")),
            # The fused kernels cover b = w = beta alone, and FlashKDA KDA.
            paths=(*(path for path in OWN_PATHS if path != "fused"), "fla"),
            default_paths="tensor,fla",
        ),
        DeltaOp(
            workload="precond_kda",
            arguments=(*_QKV, ("g", "keys"), ("g_atk", "heads"), ("beta_atk", "heads"), ("beta", "heads")),
            paths=("reference", "fla"),
            default_paths="reference,fla",
        ),
    )
}
"""By workload."""


def set_bytes(key: CellKey) -> int:
    """Bytes of one input set, the output's gradient among them."""
    tokens = key.size("B") * key.size("T") * key.size("H")
    width = {"heads": 1, "keys": key.size("K"), "values": key.size("V")}
    numbers = sum(width[extent] for _, extent in DELTA[key.workload].arguments) + key.size("V")
    return tokens * numbers * DTYPE_BYTES[key.dtype]
