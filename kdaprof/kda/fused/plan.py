"""What stays the same from call to call: each stage of a kind of call with its constants and options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from kdaprof.kda.fused.config import KernelConfig, block, channel_warps, pad
from kdaprof.kda.fused.kernels import kept, pairs, prepare, recur, state
from kdaprof.kda.fused.sizes import gradient_elements, pairs_elements, record_elements
from kdaprof.kda.fused.stage import Stage

Dtypes = tuple[torch.dtype | None, ...]


@dataclass(frozen=True, slots=True)
class ForwardPlan:
    """The forward's stages for one kind of call; `record` is in float32 elements a chunk."""

    record: int
    blocks: int
    prepare: Stage
    recur: Stage

    @property
    def compiled(self) -> bool:
        """Whether every stage takes addresses."""
        return self.prepare.compiled and self.recur.compiled


@dataclass(frozen=True, slots=True)
class BackwardPlan:
    """The backward's stages for one kind of call; `record` is that of the gradient records."""

    record: int
    blocks: int
    home: bool
    recur: Stage
    state: Stage
    pairs: Stage

    @property
    def compiled(self) -> bool:
        """Whether every stage takes addresses."""
        return self.recur.compiled and self.state.compiled and self.pairs.compiled


def dots(dtypes: Dtypes, precision: str) -> str:
    """The kernels' PRECISION. Half-precision q, k and v carry no more bits than tf32: none of tf32x3's passes."""
    half = torch.float32 not in dtypes[:3]
    return "tf32" if half and precision != "ieee" else precision


@lru_cache(maxsize=256)
def forward_plan(
    config: KernelConfig, device: torch.device, dtypes: Dtypes, k_dim: int, v_dim: int, final_state: bool,
    precision: str, keep: bool = True,
) -> ForwardPlan:  # fmt: skip
    """The plan for inputs of `dtypes` (q, k, v, g, beta, initial state or None) on `device`.

    `keep`: the records get V', which the backward reads.
    """
    record = record_elements(k_dim, v_dim)
    bv = block(v_dim, config.recur_bv)
    shared = {
        "K": k_dim, "KP": pad(k_dim), "V": v_dim, "RECORD": record, "PRECISION": dots(dtypes, precision),
    }  # fmt: skip
    # Fused multiply-add off: x - high of a product x would need -high, an instruction more for each split operand.
    return ForwardPlan(
        record,
        v_dim // bv,
        Stage(
            prepare.kdaprof_kda_fwd_prepare,
            shared,
            num_warps=channel_warps(k_dim, config.prepare_channels), num_stages=1, maxnreg=config.prepare_registers,
            enable_fp_fusion=False,
        ),
        Stage(
            recur.kdaprof_kda_fwd_recur,
            {
                **shared, "BV": bv, "HAS_H0": dtypes[5] is not None, "HAS_HT": final_state, "KEEP": keep,
                "STAGES": config.recur_stages,
            },
            num_warps=config.recur_warps, num_stages=config.recur_stages, enable_fp_fusion=False,
        ),
    )  # fmt: skip


@lru_cache(maxsize=256)
def backward_plan(
    config: KernelConfig, device: torch.device, dtypes: Dtypes, k_dim: int, v_dim: int, has_dht: bool, home: bool,
    precision: str,
) -> BackwardPlan:  # fmt: skip
    """The plan for inputs of `dtypes` of q, k, v, g, beta and initial state or None; `home`: see `sizes.at_home`."""
    # Sums through the state wait in dq, dk and dg for the last stage; half precision would round them.
    spare = not all(dtypes[i] is torch.float32 for i in (0, 1, 3))
    part = pairs_elements(k_dim, spare)
    record = gradient_elements(k_dim, v_dim, spare, home)
    bv = block(v_dim, config.back_bv)
    sizes = {"K": k_dim, "KP": pad(k_dim), "GRECORD": record}
    states = {**sizes, "V": v_dim, "PRECISION": dots(dtypes, precision)}
    saved = {"RECORD": record_elements(k_dim, v_dim)}
    products = (
        Stage(
            state.kdaprof_kda_bwd_state,
            {
                "K": k_dim, "BV": block(v_dim, config.state_bv), "RECORD": saved["RECORD"], "GRECORD": record,
                "PRECISION": dots(dtypes, precision), "STAGES": config.state_stages,
            },
            num_warps=config.state_warps, num_stages=config.state_stages, maxnreg=config.state_registers,
        )
        if home
        else Stage(
            kept.kdaprof_kda_bwd_kept,
            {
                **states, **saved, "PAIRS": part, "BV": block(v_dim, config.kept_bv), "SPARE": spare,
                "STAGES": config.kept_stages,
            },
            num_warps=config.kept_warps, num_stages=config.kept_stages,
        )
    )  # fmt: skip
    return BackwardPlan(
        record,
        v_dim // bv,
        home,
        Stage(
            recur.kdaprof_kda_bwd_recur,
            {
                **states, **saved, "PAIRS": part, "HOME": home, "BV": bv, "HAS_H0": dtypes[5] is not None,
                "HAS_DHT": has_dht, "STAGES": config.back_stages,
            },
            num_warps=config.back_warps, num_stages=config.back_stages,
        ),
        products,
        Stage(
            pairs.kdaprof_kda_bwd_pairs,
            {**sizes, "SPARE": spare},
            num_warps=channel_warps(k_dim), num_stages=1, maxnreg=config.pairs_registers,
        ),
    )  # fmt: skip
