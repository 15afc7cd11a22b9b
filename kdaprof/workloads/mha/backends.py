"""The backends of `scaled_dot_product_attention`: chosen by torch's own switches, refused in torch's own words."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch.backends import cuda as switches
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS: Final = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "mem-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
# Parts of the operators' names, which are telling where the function's own name is not.
_OPERATORS: Final = {"flash_attention": "flash", "cudnn_attention": "cudnn", "efficient_attention": "mem-efficient"}

_HEADING: Final = "not used because"
"""In the warning that stands before the reasons."""
_SWITCHED_OFF: Final = "runtime disabled"
"""Of the backends that we have switched off to ask about one."""
# What torch says when a backend is not for this call, as against a call that went wrong.
_NOT_FOR_THIS: Final = ("no available kernel", "no viable backend", "cudnn frontend error", "execution plan")


def choose(backend: str) -> None:
    """Leave `backend` as the only one that torch may take.

    `sdpa_kernel` sets the same four switches, and takes 10 µs to do it: as long as some of the calls that it would
    be timed with. Set one by one they take 0.4 µs. `kept` puts them back.
    """
    switches.enable_flash_sdp(backend == "flash")
    switches.enable_cudnn_sdp(backend == "cudnn")
    switches.enable_mem_efficient_sdp(backend == "mem-efficient")
    switches.enable_math_sdp(backend == "math")


@contextmanager
def kept() -> Iterator[None]:
    """The switches as they were, afterwards, whatever happened inside."""
    before = (
        switches.flash_sdp_enabled(),  # type: ignore[no-untyped-call]
        switches.cudnn_sdp_enabled(),  # type: ignore[no-untyped-call]
        switches.mem_efficient_sdp_enabled(),  # type: ignore[no-untyped-call]
        switches.math_sdp_enabled(),  # type: ignore[no-untyped-call]
    )
    try:
        yield
    finally:
        flash, cudnn, efficient, math = before
        switches.enable_flash_sdp(flash)
        switches.enable_cudnn_sdp(cudnn)
        switches.enable_mem_efficient_sdp(efficient)
        switches.enable_math_sdp(math)


def backend_of(operators: dict[str, int]) -> str:
    """The backend whose operator is among those that ran; `math`, which has none of its own, where none is."""
    for part, backend in _OPERATORS.items():
        if any(part in name for name in operators):
            return backend
    return "math"


def why_not(backend: SDPBackend, call: Callable[[], object]) -> str | None:
    """Why this backend cannot take the call, in torch's own words; None when it did.

    Errors: whatever the call raises for another reason than that no kernel is there for it.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel([backend]):
                call()
        except RuntimeError as error:
            # torch gives its reasons as warnings, and only then that nothing is left.
            texts = [str(one.message) for one in said]
            if not _is_refusal(error, texts):
                raise
            reasons = [_told(text) for text in texts if _HEADING not in text and _SWITCHED_OFF not in text]
            return "; ".join(dict.fromkeys(filter(None, reasons))) or _told(first_line(error))
    return None


def _is_refusal(error: RuntimeError, warned: list[str]) -> bool:
    """Whether torch says that no kernel is there for such a call. Out of memory, or a fault, is none."""
    if isinstance(error, torch.OutOfMemoryError):
        return False
    text = str(error).lower()
    return any(words in text for words in _NOT_FOR_THIS) or any(_HEADING in one for one in warned)


def first_line(error: BaseException) -> str:
    """The first line; torch adds its C++ stack below."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _told(text: str) -> str:
    """Without the place in torch's sources that a warning ends with, and the advice that follows."""
    return " ".join(text.split(" (Triggered internally", maxsplit=1)[0].split()).split(". This is likely")[0]
