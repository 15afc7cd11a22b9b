"""Runs the fused kernels in Triton's interpreter on tensors between pages that cannot be touched.

A process of its own: one read or write beside a tensor ends it with SIGSEGV. `python guarded_cases.py` prints a line a
case; with `overrun` it reads beside a tensor on purpose.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

from typing import Any

import torch
from fused_oracle import NAMES, inputs

from kdaprof.kda.fused import fused_kda, run

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE

CASES = {
    "tail": ((1, 20, 2, 16, 16), torch.float32), "bfloat16": ((1, 20, 1, 32, 32), torch.bfloat16),
    "at home": ((1, 64, 1, 64, 64), torch.float32), "not at home": ((1, 48, 1, 64, 64), torch.float32),
    "padded": ((1, 33, 1, 48, 16), torch.float32), "one token": ((1, 1, 1, 32, 32), torch.float32),
}  # fmt: skip


def guarded(shape: tuple[int, ...], dtype: torch.dtype, *, at_end: bool) -> torch.Tensor:
    """A tensor whose last byte, or first, lies at the border to a page that cannot be touched; both sides have one."""
    size = math.prod(shape) * dtype.itemsize
    pages = max(1, -(-size // PAGE))
    base = LIBC.mmap(None, (pages + 2) * PAGE, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert base not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
    first = base + PAGE
    assert LIBC.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(pages * PAGE), READ_WRITE) == 0
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    memory = (ctypes.c_char * size).from_address(first + pages * PAGE - size if at_end else first)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


class Guard:
    """torch, as `run` sees it: what it allocates is guarded."""

    def __init__(self, *, at_end: bool) -> None:
        self._at_end = at_end

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, shape: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return guarded((shape,) if isinstance(shape, int) else tuple(shape), dtype, at_end=self._at_end)

    def empty_like(self, like: torch.Tensor) -> torch.Tensor:
        return guarded(tuple(like.shape), like.dtype, at_end=self._at_end)

    def zeros_like(self, like: torch.Tensor) -> torch.Tensor:
        return self.empty_like(like).zero_()


def call(shape: tuple[int, ...], dtype: torch.dtype, *, at_end: bool) -> None:
    """Forward and backward with both states, and a forward that nobody differentiates."""
    run.torch = Guard(at_end=at_end)
    leaves = []
    for x in (made := inputs(shape, -0.1, 0.0, dtype)).values():
        leaf = guarded(tuple(x.shape), x.dtype, at_end=at_end)
        leaves.append(leaf.copy_(x).requires_grad_())
    args = dict(zip(made, leaves, strict=True))
    given = [args[name] for name in NAMES[:5]]
    wanted = {"scale": 0.5, "initial_state": args["h0"], "output_final_state": True}
    o, ht = fused_kda(*given, **wanted)
    do, dht = (guarded(tuple(x.shape), x.dtype, at_end=at_end).fill_(1.0) for x in (o, ht))
    torch.autograd.grad((o, ht), leaves, (do, dht))
    with torch.no_grad():
        fused_kda(*given, **wanted)


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main() -> None:
    if "overrun" in sys.argv:
        x = guarded((4,), torch.float32, at_end=True)
        tell("within", x[3].item())
        tell("beyond", ctypes.c_float.from_address(x.data_ptr() + 16).value)
        return
    for name, (shape, dtype) in CASES.items():
        for at_end in (True, False):
            call(shape, dtype, at_end=at_end)
            tell(name, "end" if at_end else "begin")


if __name__ == "__main__":
    main()
