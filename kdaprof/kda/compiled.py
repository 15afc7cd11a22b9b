"""The path `compiled`: torch.compile of the tensor path, made on the first call and kept for the process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from kdaprof.errors import UnavailableError
from kdaprof.kda.shapes import Operands
from kdaprof.kda.tensor import chunk_gdn2

_failed: dict[str, str] = {}
_seen: set[tuple[object, ...]] = set()


def compiled_refusal(device_type: str) -> str | None:
    """Why this path cannot run on such a device, once a first call has found out; None before, or when it can."""
    return _failed.get(device_type)


def compiled_gdn2(
    x: Operands, *, scale: float, initial_state: Tensor | None = None, chunk: int = 16
) -> tuple[Tensor, Tensor]:
    """`chunk_gdn2` under torch.compile, static shapes. A call of a new shape or dtype compiles for seconds.

    Raises: UnavailableError with the compiler's own reason when there is no compiler to compile with.
    """
    key = (
        *(None if t is None else (t.shape, t.stride(), t.dtype, t.requires_grad) for t in (*x, initial_state)),
        x.q.device,
        x.w is x.b,
        scale,
        chunk,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
    )
    run = functools.partial(_compile(), x, scale=scale, initial_state=initial_state, chunk=chunk)
    try:
        if key in _seen:
            return run()
        # Each new kind of call is one more compiled version of one function; the default limit of 8 is meant for
        # functions that recompile by accident.
        with torch._dynamo.config.patch(recompile_limit=len(_seen) + 16):
            result = run()
    except Exception as error:
        reason = _compiler_missing(error)
        if reason is None:
            raise
        _failed[x.q.device.type] = reason
        raise UnavailableError(f"path 'compiled' cannot run: {reason}") from error
    _seen.add(key)
    return result


@functools.cache
def _compile() -> Callable[..., tuple[Tensor, Tensor]]:
    compiled: Callable[..., Any] = torch.compile(chunk_gdn2, fullgraph=True, dynamic=False)
    return compiled


def _compiler_missing(error: BaseException) -> str | None:
    """The reason in words when the chain of errors ends at an absent compiler, else None."""
    for link in _chain(error):
        name, text = type(link).__name__, str(link)
        if name == "InvalidCxxCompiler" or "InvalidCxxCompiler" in text:
            return "torch.compile needs a working C++ compiler (g++) on the CPU and found none"
        if name == "TritonMissing" or "TritonMissing" in text:
            return "torch.compile needs a working Triton on this device and found none"
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = getattr(link, "inner_exception", None) or link.__cause__ or link.__context__
