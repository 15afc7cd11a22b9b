"""What is known of each relative before torch is imported: its arguments, its paths, its work, the sizes of a set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kdaprof.kda.cost import OpSize, flops
from kdaprof.kda.traffic import rate_name
from kdaprof.runs.cells import DTYPE_BYTES, OWN_PATHS, CellKey
from kdaprof.runs.record import Work

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
    return _inputs_bytes(key) + _output_bytes(key)


def work(key: CellKey) -> Work:
    """Operations and compulsory bytes of one call; no path's own bytes are listed.

    Operations are those of KDA's chunk form: where the relatives gate, decay or precondition otherwise, they scale the
    factors of the same products. Bytes: forward the inputs and o once; backward the inputs, do and every gradient.
    """
    inputs, output = _inputs_bytes(key), _output_bytes(key)
    forward, backward = inputs + output, 2 * inputs + output
    return Work(
        flops=flops(key.phase, OpSize.of(key.shape)),
        bytes_compulsory={"fwd": forward, "bwd": backward, "fwdbwd": forward + backward}[key.phase],
        bytes_path=None,
        rate=rate_name(key.path, key.dtype),
    )


def _inputs_bytes(key: CellKey) -> int:
    width = {"heads": 1, "keys": key.size("K"), "values": key.size("V")}
    return (
        _token_heads(key) * sum(width[extent] for _, extent in DELTA[key.workload].arguments) * DTYPE_BYTES[key.dtype]
    )


def _output_bytes(key: CellKey) -> int:
    return _token_heads(key) * key.size("V") * DTYPE_BYTES[key.dtype]


def _token_heads(key: CellKey) -> int:
    return key.size("B") * key.size("T") * key.size("H")
