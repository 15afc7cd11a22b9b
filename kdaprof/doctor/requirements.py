"""Versions that are needed or belong together, as data: to add one is to add a line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package, the versions that work, whether nothing can be measured without it, and what it is for."""

    name: str
    versions: str
    needed: bool
    purpose: str
    install: str


REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement("torch", ">=2.11", True, "runs everything that is measured", "pip install 'kdaprof[torch]'"),
    Requirement(
        "triton", ">=3.6", False, "compiles the fused path and torch.compile's", "pip install 'kdaprof[torch]'"
    ),
    Requirement("nvidia-ml-py", ">=12.560", False, "clocks, utilisation, other processes", "pip install nvidia-ml-py"),
    Requirement("nvtx", ">=0.2.11", False, "ranges that Nsight shows", "pip install 'nvtx>=0.2.11'"),
    Requirement("py-spy", ">=0.4", False, "host stacks (kdaprof stacks)", "pip install 'py-spy>=0.4'"),
)

# CUDA major version of torch's build → lowest driver that runs it.
DRIVERS: tuple[tuple[int, int], ...] = ((13, 580), (12, 525), (11, 450))
DRIVERS_SOURCE = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable of FLA: what it does unset, and what it does set."""

    name: str
    unset: str
    meaning: str


FLA_SETTINGS: tuple[Setting, ...] = (
    Setting("FLA_DISABLE_BACKEND_DISPATCH", "0", "1 keeps every call on FLA's own Triton kernels"),
    Setting("FLA_FLASH_KDA", "1", "0 keeps chunk_kda from FlashKDA"),
    Setting("FLA_TILELANG", "1", "0 keeps calls from TileLang kernels"),
    Setting("FLA_INTRACARD_CP", "0", "1 splits a sequence within the card in inference"),
    Setting("FLA_TRIL_PRECISION", "ieee", "tf32 and tf32x3 change the triangle's inverse"),
    Setting("FLA_USE_FAST_OPS", "0", "1 takes faster, less accurate intrinsics"),
    Setting("FLA_CACHE_MODE", "disabled", "others take stored configurations instead of tuning"),
)
FLA_SOURCE = "https://github.com/fla-org/flash-linear-attention/blob/main/ENVs.md"
HANDED_ON_SOURCE = "https://github.com/MoonshotAI/FlashKDA/pull/18"

# Backends of scaled_dot_product_attention and the dtypes that they take on a GPU. Seen on an H200 (torch 2.11) and on
# an RTX 5060 Ti (torch 2.11.0+cu128, field report pytorch-baseline §2): float32 has no flash and no cuDNN.
ATTENTION: tuple[tuple[str, frozenset[str]], ...] = (
    ("flash", frozenset({"float16", "bfloat16"})),
    ("cudnn", frozenset({"float16", "bfloat16"})),
    ("mem-efficient", frozenset({"float32", "float16", "bfloat16"})),
    ("math", frozenset({"float32", "float64", "float16", "bfloat16"})),
)
ATTENTION_SOURCE = "https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/operations/Attention.html"
