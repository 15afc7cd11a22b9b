"""Launch configurations by (architecture, K, V): a small table, no autotuning at run time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """Tile widths over V, warps, pipeline stages and register caps (None: no cap) of the three kinds of kernel."""

    prepare_warps: int
    recur_bv: int
    recur_warps: int
    recur_stages: int
    bwd_recur_stages: int
    gradient_bv: int
    gradient_warps: int
    prepare_registers: int | None = None
    gradient_registers: int | None = None


# Taken by every card not in the table. One warp in the recurrences: `tl.dot` recurrences with more than two
# warps go wrong on Blackwell (fla#945, #953, #999); two stages keep shared memory below the 99 KiB of sm_120.
SAFE = KernelConfig(
    prepare_warps=2,
    recur_bv=16,
    recur_warps=1,
    recur_stages=2,
    bwd_recur_stages=2,
    gradient_bv=16,
    gradient_warps=4,
)

# (major, minor) of the compute capability, then the larger of K and V padded to a power of two.
TABLE: dict[tuple[int, int], dict[int, KernelConfig]] = {
    (9, 0): {
        64: KernelConfig(
            prepare_warps=2,
            recur_bv=16,
            recur_warps=1,
            recur_stages=3,
            bwd_recur_stages=2,
            gradient_bv=32,
            gradient_warps=2,
        ),
    },
}


def pad(size: int) -> int:
    """The next power of two at or above `size`: Triton's ranges are powers of two."""
    return 1 << (size - 1).bit_length()


def block(size: int, widest: int) -> int:
    """The widest power of two, at most `widest`, that divides `size` (a multiple of 16): no mask over V."""
    width = widest
    while size % width:
        width //= 2
    return width


def choose(capability: tuple[int, int] | None, k_dim: int, v_dim: int) -> KernelConfig:
    """The table's entry for a card (None: the interpreter), else the safe one."""
    if capability is None:
        return SAFE
    return TABLE.get(capability, {}).get(pad(max(k_dim, v_dim)), SAFE)
