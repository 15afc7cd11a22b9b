"""Which layer of a training step a stack is in: rules over file and function names, innermost frame first.

A frame that no rule knows says nothing, and the next one outside it decides. Names of C++ symbols are those of torch
2.11 to 2.13 and Triton 3.6 to 3.7.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from kdaprof.analysis.stacks_trace import Frame

Layer = Literal[
    "python",
    "autograd",
    "dispatcher",
    "aten",
    "allocator",
    "cuda_launch",
    "sync",
    "triton_launcher",
    "compile",
    "import",
    "waiting",
    "no_core",
    "unknown",
]
LAYERS: tuple[Layer, ...] = get_args(Layer)

NATIVE_ONLY: frozenset[Layer] = frozenset({"dispatcher", "aten", "allocator", "cuda_launch"})
"""Layers inside a C call: Python stacks end at the line that made it."""

COUNTED_ONLY: frozenset[Layer] = frozenset({"no_core"})
"""Layers that only the kernel's counters know."""

MEANING: dict[Layer, str] = {
    "python": "Python code, and what it calls that no other line claims",
    "autograd": "the autograd engine and the recording of operations",
    "dispatcher": "choosing the kernel of an operation",
    "aten": "inside an operation, on the host",
    "allocator": "getting and giving back memory",
    "cuda_launch": "handing work to the driver",
    "sync": "waiting for the device",
    "triton_launcher": "from a Triton kernel's call to its launch",
    "compile": "torch.compile and Triton compiling or tuning",
    "import": "loading modules",
    "waiting": "asleep, or waiting for another thread, a lock, a file",
    "no_core": "ready to run, while others had the core",
    "unknown": "no frame told",
}


@dataclass(frozen=True, slots=True)
class _Rule:
    layer: Layer
    file: re.Pattern[str]
    name: re.Pattern[str]


def _rule(layer: Layer, file: str, name: str = "") -> _Rule:
    return _Rule(layer, re.compile(file), re.compile(name))


# Wherever such a frame stands in the stack, all inside it belongs to the layer.
_ANYWHERE = (
    _rule("import", r"^<frozen importlib\._bootstrap>$", r"^_find_and_load"),
    _rule("compile", r"triton/(compiler|backends/\w+/compiler)", r""),
    _rule("compile", r"torch/_dynamo/convert_frame\.py$"),
    _rule("compile", r"triton/runtime/autotuner\.py$", r"_bench|benchmark"),
)
_SO = r"\.so(\.|$)"
_RULES = (
    _rule("sync", _SO, r"^cu(da)?(Stream|Device|Event|Ctx)Synchronize|^cudaMemcpy$|stream_synchronize"),
    _rule("sync", _SO, r"_local_scalar_dense_cuda|at::cuda::(CUDAEvent|CUDAStream).*synchronize"),
    _rule("sync", r"torch/cuda/(__init__|streams)\.py$", r"(^|\.)synchronize$"),
    _rule("allocator", _SO, r"^cu(da)?(Malloc|Free|Mem(Alloc|Free|Map|Unmap|Create|Release))"),
    _rule("allocator", _SO, r"CachingAllocator|CPUAllocator|(^|::)(alloc|free)_cpu|(^|:)ProfiledCPUMemoryReporter"),
    _rule(
        "allocator", r"libc\.so|libc-|jemalloc|tcmalloc|libstdc\+\+", r"^(_?_?(libc_)?(malloc|calloc|free|realloc))$"
    ),
    _rule(
        "allocator", r"libc\.so|jemalloc|tcmalloc|libstdc\+\+", r"^(posix_memalign|aligned_alloc|operator (new|delete))"
    ),
    _rule("cuda_launch", _SO, r"^cu(da)?(LaunchKernel|GraphLaunch|MemcpyAsync|MemsetAsync|LaunchCooperative)"),
    _rule("triton_launcher", r"triton/(runtime|backends)/|__triton_launcher|triton_launcher"),
    _rule(
        "waiting", r"libc\.so|libpthread", r"nanosleep|^(pthread_cond_(timed)?wait|sem_(timed)?wait|poll|ppoll|select)"
    ),
    _rule("waiting", r"libc\.so|libpthread", r"^(epoll_p?wait|read|recv|recvmsg|accept|wait4|waitid|pthread_join)"),
    _rule("waiting", _SO, r"^(PyThread_acquire_lock|take_gil|pysleep)"),
    _rule("autograd", _SO, r"^torch::autograd::(?!THP|generated::THP)|^torch::autograd::python::|THPEngine"),
    _rule("autograd", r"torch/autograd/|torch/_tensor\.py$"),
    _rule("dispatcher", _SO, r"^c10::(Dispatcher|impl::|OperatorHandle|KernelFunction|BoxedKernel|DispatchKey)"),
    _rule("dispatcher", _SO, r"^at::_ops::"),
    _rule("aten", r"libtorch_(cpu|cuda)|libc10|libmkl|libcublas|libcudnn|libopenblas|libgomp", r"^(?!0x)"),
    _rule("python", r"libpython|libtorch_python|/python3[\d.]*$", r"^(?!0x)"),
    _rule("python", r"\.py$|^<"),
)
_DRIVER = re.compile(r"libcuda\.so|libnvidia")
_WORKED: frozenset[Layer] = frozenset({"triton_launcher", "autograd", "dispatcher", "aten", "python"})


def layer_of(frames: Sequence[Frame]) -> Layer:
    """The layer of a stack, outermost frame first.

    The driver's own functions have no names: with nothing more exact outside them they count as a launch. A stack
    that waits inside a synchronisation waits for the device.
    """
    for rule in _ANYWHERE:
        if any(rule.file.search(frame.file) and rule.name.search(frame.name) for frame in frames):
            return rule.layer
    driver = False
    waits = False
    for frame in reversed(frames):
        driver = driver or _DRIVER.search(frame.file) is not None
        layer = _of_frame(frame)
        if layer is None:
            continue
        if layer == "waiting":
            waits = True
        elif waits:
            if layer == "sync":
                return "sync"
        else:
            return "cuda_launch" if driver and layer in _WORKED else layer
    return "waiting" if waits else "unknown"


def _of_frame(frame: Frame) -> Layer | None:
    for rule in _RULES:
        if rule.file.search(frame.file) and rule.name.search(frame.name):
            return rule.layer
    return None
