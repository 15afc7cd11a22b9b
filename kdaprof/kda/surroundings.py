"""What surrounds a call: torch.func transforms, dispatch modes, autocast. Asked of torch, never of an exact type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import torch
from torch import Tensor


def functorch_active() -> bool:
    """Whether a torch.func transform (vmap, grad, jvp, …) surrounds this call."""
    return bool(torch._C._are_functorch_transforms_active())


def dispatch_modes_active() -> bool:
    """Whether a Python dispatch mode (FakeTensorMode, FlopCounterMode, selective checkpointing, …) is on."""
    return bool(torch._C._len_torch_dispatch_stack())


def any_overrides_dispatch(tensors: Iterable[Tensor | None]) -> bool:
    """Whether one of the tensors answers operators itself (`__torch_dispatch__`), as FakeTensor and DTensor do.

    Its memory need not hold its values, so a kernel must reach it as a registered operator, not by address.
    nn.Parameter, and subclasses with no more than `__torch_function__`, are ordinary tensors in this sense.
    """
    ordinary = Tensor.__torch_dispatch__
    return any(x is not None and type(x).__torch_dispatch__ is not ordinary for x in tensors)


def no_autocast(device_type: str) -> contextlib.AbstractContextManager[object]:
    """Autocast off: it would turn float32 products into bfloat16 ones, which the exponentials do not survive."""
    # Not torch.amp.is_autocast_available: torch 2.11's compiler cannot look into it. Autocast knows no meta device.
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()
