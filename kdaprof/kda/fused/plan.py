"""What stays the same from call to call: each kernel with its constants, options and, once compiled, its handle.

`kernel[grid](…)` binds, specialises and looks up its arguments at every call; a compiled handle does not, which on
an H200's host takes a third off a launch. The handle was compiled for pointers at 16-byte borders, so a call with
any other pointer goes the long way, where Triton compiles a version for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from kdaprof.kda.fused.config import KernelConfig, block, channel_warps, choose, pad
from kdaprof.kda.fused.kernels import pairs, prepare, recur, state
from kdaprof.kda.fused.support import CHUNK


class Stage:
    """One kernel, ready to launch on tensors."""

    __slots__ = ("_compiled", "_constants", "_kernel", "_options", "_values")

    def __init__(self, kernel: Any, constants: dict[str, Any], **options: Any) -> None:
        """`constants` are the kernel's last parameters, in any order; `options` are Triton's."""
        self._kernel, self._constants, self._options = kernel, constants, options
        self._values = tuple(constants[name] for name in kernel.arg_names[-len(constants) :])
        self._compiled: Any = None

    def __call__(self, grid: int, aligned: bool, *arguments: Any) -> None:
        """Launch `grid` programs; `aligned` says that every pointer in `arguments` is a multiple of 16."""
        if aligned and self._compiled is not None:
            self._compiled[(grid, 1, 1)](*arguments, *self._values)
            return
        compiled = self._kernel[(grid,)](*arguments, **self._constants, **self._options)
        if aligned:
            self._compiled = compiled


@dataclass(frozen=True, slots=True)
class ForwardPlan:
    """The forward's stages for one kind of call; `record` is in float32 elements a chunk."""

    record: int
    blocks: int
    prepare: Stage
    recur: Stage


@dataclass(frozen=True, slots=True)
class BackwardPlan:
    """The backward's stages for one kind of call; `record` is that of the gradient records."""

    record: int
    blocks: int
    recur: Stage
    state: Stage
    pairs: Stage


def record_elements(k_dim: int, v_dim: int) -> int:
    """Float32 elements of one chunk's record (layout: `kernels/common.py`)."""
    return 3 * CHUNK * k_dim + CHUNK * v_dim + 2 * CHUNK * CHUNK + k_dim


def gradient_record_elements(k_dim: int, v_dim: int, spare: bool) -> int:
    """Float32 elements of one chunk's gradient record; `spare` unless q, k and g are float32."""
    kept = 2 * k_dim * v_dim + 2 * CHUNK * v_dim + 2 * CHUNK * CHUNK + k_dim + CHUNK
    return kept + (3 * CHUNK * k_dim if spare else 0)


def config_for(device: torch.device, k_dim: int, v_dim: int) -> KernelConfig:
    """The table's entry for a device; the safe one in the interpreter."""
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    return choose(capability, k_dim, v_dim)


def _dots(dtype: torch.dtype, precision: str) -> str:
    """bf16 and fp16 inputs carry no more bits than tf32, so their dots need none of tf32x3's passes."""
    return precision if dtype is torch.float32 or precision == "ieee" else "tf32"


Dtypes = tuple[torch.dtype | None, ...]


@lru_cache(maxsize=256)
def forward_plan(
    device: torch.device, dtypes: Dtypes, k_dim: int, v_dim: int, final_state: bool, precision: str
) -> ForwardPlan:
    """The plan for inputs of `dtypes` (q, k, v, g, beta, initial state or None)."""
    config = config_for(device, k_dim, v_dim)
    record = record_elements(k_dim, v_dim)
    bv = block(v_dim, config.recur_bv)
    shared = {
        "K": k_dim, "KP": pad(k_dim), "V": v_dim, "RECORD": record, "PRECISION": _dots(_coarsest(dtypes), precision),
    }  # fmt: skip
    return ForwardPlan(
        record,
        v_dim // bv,
        Stage(
            prepare.kdaprof_kda_fwd_prepare,
            {**shared, "VP": pad(v_dim)},
            num_warps=channel_warps(k_dim), num_stages=1, maxnreg=config.prepare_registers,
        ),
        Stage(
            recur.kdaprof_kda_fwd_recur,
            {
                **shared, "BV": bv, "HAS_H0": dtypes[5] is not None, "HAS_HT": final_state,
                "STAGES": config.recur_stages,
            },
            num_warps=config.recur_warps, num_stages=config.recur_stages,
        ),
    )  # fmt: skip


@lru_cache(maxsize=256)
def backward_plan(
    device: torch.device, dtypes: Dtypes, k_dim: int, v_dim: int, has_dht: bool, precision: str
) -> BackwardPlan:
    """The plan for inputs of `dtypes` (q, k, v, g, beta, initial state or None)."""
    config = config_for(device, k_dim, v_dim)
    # Sums through the state wait in dq, dk and dg for the last stage; half precision would round them.
    spare = not all(dtypes[i] is torch.float32 for i in (0, 1, 3))
    record = gradient_record_elements(k_dim, v_dim, spare)
    bv = block(v_dim, config.back_bv)
    sizes = {"K": k_dim, "KP": pad(k_dim), "V": v_dim, "GRECORD": record}
    dots = _dots(_coarsest(dtypes), precision)
    return BackwardPlan(
        record,
        v_dim // bv,
        Stage(
            recur.kdaprof_kda_bwd_recur,
            {
                **sizes, "PRECISION": dots, "RECORD": record_elements(k_dim, v_dim), "BV": bv,
                "HAS_H0": dtypes[5] is not None, "HAS_DHT": has_dht, "STAGES": config.back_stages,
            },
            num_warps=config.back_warps, num_stages=config.back_stages,
        ),
        Stage(
            state.kdaprof_kda_bwd_state,
            {
                **sizes, "PRECISION": dots, "BV": block(v_dim, config.state_bv), "SPARE": spare,
                "STAGES": config.state_stages,
            },
            num_warps=config.state_warps, num_stages=config.state_stages, maxnreg=config.state_registers,
        ),
        Stage(
            pairs.kdaprof_kda_bwd_pairs,
            {**sizes, "SPARE": spare},
            num_warps=channel_warps(k_dim), num_stages=1, maxnreg=config.pairs_registers,
        ),
    )  # fmt: skip


def _coarsest(dtypes: Dtypes) -> torch.dtype:
    """float32 unless all of q, k and v are half precision: a mixed call keeps float32's products."""
    q, k, v = dtypes[:3]
    return torch.float32 if torch.float32 in (q, k, v) or q is None else q
