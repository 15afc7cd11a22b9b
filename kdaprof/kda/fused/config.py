"""Launch configurations by (architecture, K, V): a small table, no autotuning at run time."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """Tile widths over V (`bv`), warps, pipeline stages and register caps (None: no cap) of each kernel.

    The kernels that give a thread whole channels (prepare, pairs) have `channel_warps` instead.
    """

    prepare_channels: int
    """Channels of a thread: 1 or 2."""
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
    kept_bv: int
    kept_warps: int
    kept_stages: int
    pairs_registers: int | None


# What every card not in the table takes, by the larger of K and V padded to a power of two. At most two warps in the
# recurrences: `tl.dot` recurrences with more go wrong on Blackwell (fla#945, #953, #999); two stages keep shared
# memory below the 99 KiB of sm_120.
_MIDDLE = KernelConfig(
    prepare_channels=1,
    prepare_registers=None,
    recur_bv=16,
    recur_warps=1,
    recur_stages=2,
    back_bv=16,
    back_warps=1,
    back_stages=2,
    state_bv=16,
    state_warps=4,
    state_stages=2,
    state_registers=None,
    kept_bv=16,
    kept_warps=2,
    kept_stages=2,
    pairs_registers=None,
)
_WIDE = replace(_MIDDLE, recur_warps=2, back_warps=2, kept_warps=4)
SAFE = {16: _MIDDLE, 32: _MIDDLE, 64: _MIDDLE, 128: _WIDE}

# By (major, minor) of the compute capability; sizes that are missing take the safe entry.
TABLE: dict[tuple[int, int], dict[int, KernelConfig]] = {
    (9, 0): {
        64: replace(
            _MIDDLE,
            prepare_channels=2,
            prepare_registers=168,
            recur_bv=32,
            recur_warps=2,
            recur_stages=3,
            back_bv=32,
            back_warps=4,
            back_stages=3,
            state_stages=3,
        ),
    },
}


def pad(size: int) -> int:
    """The next power of two at or above `size`: Triton's ranges are powers of two."""
    return 1 << (size - 1).bit_length()


def channel_warps(k_dim: int, channels: int = 1) -> int:
    """Warps of the kernels that give a thread `channels` channels of K and all of a chunk's rows."""
    return max(1, pad(k_dim) // (32 * channels))


def block(size: int, widest: int) -> int:
    """The widest power of two, at most `widest`, that divides `size` (a multiple of 16): no mask over V."""
    width = widest
    while size % width:
        width //= 2
    return width


def candidates(capability: tuple[int, int] | None, k_dim: int, v_dim: int) -> tuple[KernelConfig, ...]:
    """The entries to try on a card, the best first and the safe one last; None is the interpreter."""
    size = pad(max(k_dim, v_dim))
    entries = {} if capability is None else TABLE.get(capability, {})
    return tuple(dict.fromkeys((entries.get(size, SAFE[size]), SAFE[size])))


def choose(capability: tuple[int, int] | None, k_dim: int, v_dim: int) -> KernelConfig:
    """The first of `candidates`."""
    return candidates(capability, k_dim, v_dim)[0]
