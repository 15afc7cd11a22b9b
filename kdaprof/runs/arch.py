"""Compute capabilities as what is known of kernels names them."""

from __future__ import annotations

Arch = tuple[int, int | None]
"""Compute capability; None for every minor of a major."""


def on_arch(archs: tuple[Arch, ...], capability: tuple[int, int]) -> bool:
    """Whether a capability is among `archs`."""
    return any(major == capability[0] and minor in (None, capability[1]) for major, minor in archs)


def parse_capability(text: str | None) -> tuple[int, int] | None:
    """`9.0` → (9, 0); None for what is no capability."""
    major, dot, minor = (text or "").partition(".")
    return (int(major), int(minor)) if dot and major.isdecimal() and minor.isdecimal() else None
