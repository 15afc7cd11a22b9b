"""What a runtime or driver call is, by its name: launch, synchronising, allocator, module load.

Names are those of CUDA's runtime and driver and of HIP, with or without the version suffix of Nsight Systems
(`cudaLaunchKernel_v7000`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntFlag
from functools import lru_cache

import numpy as np

from kdaprof.timeline.columns import UInt8


class Api(IntFlag):
    """Properties of a call. A blocking copy is both LAUNCH and BLOCKING_COPY, a page-locked allocation both
    ALLOCATOR and PINNED.
    """

    NONE = 0
    LAUNCH = 1
    SYNC = 2
    ALLOCATOR = 4
    JIT = 8
    BLOCKING_COPY = 16
    GRAPH_LAUNCH = 32
    GRAPH_INSTANTIATE = 64
    PINNED = 128


_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds|_spt|R\d{4})+$")
_LAUNCH = re.compile(r"(cuda\w*Launch\w*|cu\w*Launch\w*|hip\w*Launch\w*|\w+GraphLaunch)$")
_NOT_LAUNCH = re.compile(r".*(Config|Configuration|Attribute|Parameter|Resources)\w*$")
_COPY = re.compile(r"(cuda|cu|hip)(Memcpy|Memset)\w*$")
_SYNC = re.compile(r"(cuda|cu|hip)\w*Synchronize\w*$")
_ALLOCATOR = re.compile(
    r"(cudaMalloc|cudaFree|cudaHostAlloc|cudaHostRegister|cudaHostUnregister|cudaMemPool|cuMemAlloc|cuMemFree"
    r"|cuMemHostAlloc|cuMemHostRegister|cuMemCreate|cuMemMap|cuMemUnmap|cuMemRelease|cuMemAddress|cuMemSetAccess"
    r"|hipMalloc|hipFree|hipHostMalloc|hipHostFree|hipHostAlloc|hipExtMalloc|hipMemPool|hipMemCreate|hipMemMap)\w*$"
)
_PINNED = re.compile(r"(cudaHostAlloc|cudaMallocHost|cuMemHostAlloc|cuMemAllocHost|hipHostMalloc|hipHostAlloc)\w*$")
_JIT = re.compile(
    r"((cu|cuda|hip)Module(Load|Get|Unload)\w*|(cu|cuda)Library(Load|Get|Unload)\w*|(cu|hiprtc)Link\w*"
    r"|nvrtc\w*|hiprtc\w*|cudaFuncGetAttributes_lazy)$"
)
_BLOCKING = re.compile(r"(cuda|cu|hip)Memcpy\w*$")
_INSTANTIATE = re.compile(r"(cuda|cu|hip)GraphInstantiate\w*$")

# Compilers and loaders that appear as operators; `Torch-Compiled Region` runs compiled code and is none.
_JIT_OPERATORS = re.compile(
    r"(?i).*(lazy function loading|module loading|autotun|triton.*compil|_compile\.<locals>|compile_fx|"
    r"dynamo.*convert_frame|inductor.*compil|async_compile|codecache).*"
)


def base_name(name: str) -> str:
    """The API's name without version suffix."""
    return _SUFFIX.sub("", name)


@lru_cache(maxsize=4096)
def classify(name: str) -> Api:
    """The properties of the call of this name."""
    api = base_name(name)
    found = Api.NONE
    if _COPY.match(api):
        found |= Api.LAUNCH
        if _BLOCKING.match(api) and "Async" not in api:
            found |= Api.BLOCKING_COPY
    elif _LAUNCH.match(api) and not _NOT_LAUNCH.match(api):
        found |= Api.LAUNCH
        if api.endswith("GraphLaunch"):
            found |= Api.GRAPH_LAUNCH
    if _SYNC.match(api):
        found |= Api.SYNC
    if _ALLOCATOR.match(api):
        found |= Api.ALLOCATOR
    if _PINNED.match(api):
        found |= Api.PINNED
    if _JIT.match(api):
        found |= Api.JIT
    if _INSTANTIATE.match(api):
        found |= Api.GRAPH_INSTANTIATE
    return found


def properties(names: Sequence[str]) -> UInt8:
    """The properties of each name [m], as bits of `Api`."""
    return np.array([int(classify(name)) for name in names], dtype=np.uint8)


def is_jit_operator(name: str) -> bool:
    """Whether an operator or an overhead record is compiling or loading code."""
    return _JIT_OPERATORS.match(name) is not None
