"""Launch configurations by (architecture, K, V): a small table, no autotuning at run time."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """Tile widths over V (`bv`), warps, pipeline stages and register caps (None: no cap) of each kernel."""

    prepare_warps: int
    prepare_registers: int | None
    recur_bv: int
    recur_warps: int
    recur_stages: int
    back_bv: int
    back_warps: int
    back_stages: int
    state_bv: int
    state_warps: int
    state_stages: int
    state_registers: int | None
    pairs_warps: int
    pairs_registers: int | None


# Taken by every card not in the table. One warp in the recurrences: `tl.dot` recurrences with more than two
# warps go wrong on Blackwell (fla#945, #953, #999); two stages keep shared memory below the 99 KiB of sm_120.
SAFE = KernelConfig(
    prepare_warps=2,
    prepare_registers=None,
    recur_bv=16,
    recur_warps=1,
    recur_stages=2,
    back_bv=16,
    back_warps=1,
    back_stages=2,
    state_bv=16,
    state_warps=4,
    state_stages=1,
    state_registers=None,
    pairs_warps=2,
    pairs_registers=None,
)

# (major, minor) of the compute capability, then the larger of K and V padded to a power of two.
TABLE: dict[tuple[int, int], dict[int, KernelConfig]] = {
    (9, 0): {64: replace(SAFE, recur_stages=3, state_bv=32)},
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
