"""Implementations of others: on which cards they run, whether they train, and why not here. Data, with sources."""

from __future__ import annotations

from dataclasses import dataclass

from kdaprof.runs.arch import Arch, on_arch

CEILING_REPORT = "field report kda-sota-ceiling, 2026-09-27"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """One implementation. `trains_on`: where it has a backward; `limits`: what else it asks for."""

    id: str
    name: str
    runs_on: tuple[Arch, ...]
    trains_on: tuple[Arch, ...]
    reason: str
    """Why it runs there and nowhere else."""
    limits: str
    source: str


ELSEWHERE: tuple[Elsewhere, ...] = (
    Elsewhere(
        id="flashinfer-gdn-blackwell",
        name="FlashInfer's gated delta rule for data-centre Blackwell (gated_delta_net_chunked)",
        runs_on=((10, None),),
        trains_on=(),
        reason="its products are tcgen05 with the state in Tensor Memory, which only sm_100 and sm_103 have; "
        "sm_120 keeps warp-level mma.sync",
        limits="prefill of gated delta rule, forward only",
        source=f"{CEILING_REPORT} §1.5; https://github.com/Dao-AILab/flash-attention/pull/2634",
    ),
    Elsewhere(
        id="flashinfer-gdn-prefill",
        name="FlashInfer's gated delta rule prefill by architecture",
        runs_on=((9, 0), (10, None), (12, 0)),
        trains_on=(),
        reason="one kernel each for sm_90, sm_100 and sm_120",
        limits="forward only, head size 128",
        source="https://github.com/flashinfer-ai/flashinfer/pull/3477, https://github.com/flashinfer-ai/flashinfer/pull/3479",
    ),
    Elsewhere(
        id="lethe",
        name="lethe's training backward",
        runs_on=((10, 0),),
        trains_on=((10, 0),),
        reason="tcgen05 products on 128×64×128 tiles, through a pinned CUTLASS CuTe DSL: B200 alone",
        limits="gated delta rule",
        source=f"{CEILING_REPORT} §1.5",
    ),
    Elsewhere(
        id="flashqla",
        name="FlashQLA (TileLang)",
        runs_on=((9, 0), (10, 0), (10, 3), (12, 0)),
        trains_on=((9, 0), (10, 0), (10, 3)),
        reason="kernels for these architectures alone; on sm_120 the backward is not implemented and says so",
        limits="gated delta rule; on sm_120 bfloat16 and forward only",
        source="https://github.com/QwenLM/FlashQLA/pull/21, https://github.com/fla-org/flash-linear-attention/pull/1094",
    ),
    Elsewhere(
        id="flashqla-port",
        name="FlashQLA's community port for sm_120 and sm_121",
        runs_on=((12, 0), (12, 1)),
        trains_on=(),
        reason="written for the 99 KiB of shared memory of consumer Blackwell",
        limits="gated delta rule prefill, forward only",
        source=f"{CEILING_REPORT} §1.4",
    ),
    Elsewhere(
        id="flashkda",
        name="FlashKDA (CUTLASS)",
        runs_on=((9, None), (10, None), (12, None)),
        trains_on=(),
        reason="needs the TMA of sm_90 and above",
        limits="K = V = 128, bfloat16, CUDA 12.9, under torch.inference_mode, forward only",
        source="https://github.com/MoonshotAI/FlashKDA, https://github.com/MoonshotAI/FlashKDA/issues/4",
    ),
)


def place_of(other: Elsewhere, capability: tuple[int, int] | None) -> str:
    """Whether the implementation runs on that card, and why not; where it runs, when no card is known."""
    places = ", ".join(f"sm_{major}{'x' if minor is None else minor}" for major, minor in other.runs_on)
    if capability is None:
        return f"for {places}; {other.limits}"
    here = f"sm_{capability[0]}{capability[1]}"
    if not on_arch(other.runs_on, capability):
        return f"cannot run on {here}, it is for {places}: {other.reason}"
    if not on_arch(other.trains_on, capability):
        return f"runs on {here}, forward only; {other.limits}"
    return f"runs on {here}, with a backward; {other.limits}"
