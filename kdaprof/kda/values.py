"""The checks that read values: apart from the call, because each one waits for the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from kdaprof.errors import UsageError
from kdaprof.kda.gate import check_path
from kdaprof.kda.shapes import accumulate_dtype, check_chunk, check_kda
from kdaprof.kda.tensor import BLOCK

RANGE: Final = 80.0
"""How far g may fall within 16 tokens before the factored exponentials come near float32's limit of 88.7."""

UNIT_SLACK: Final = 1e-2
"""How far a key's length may be from 1: bfloat16 keeps eight bits, so a normalised key is off by up to 0.4 %."""

LARGEST_BETA: Final = 2.0
"""Up to here 1 - beta, the factor on a unit key's direction, stays within -1…1."""

_ANY_RANGE: Final = ("fused", "reference")


class ValueRangeError(UsageError, ValueError):
    """A tensor holds values that the op, or the path asked about, has no meaning for."""


@dataclass(frozen=True, slots=True)
class ValueEntry:
    """One thing found: `error` makes the result wrong or non-finite, `warning` may."""

    level: Literal["error", "warning"]
    tensor: str
    text: str


@dataclass(frozen=True, slots=True)
class ValueReport:
    """What `validate` found, in the order of the arguments."""

    entries: tuple[ValueEntry, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings do not count."""
        return not self.errors

    @property
    def errors(self) -> tuple[ValueEntry, ...]:
        """The errors alone."""
        return tuple(e for e in self.entries if e.level == "error")


def validate(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    initial_state: Tensor | None = None,
    chunk: int = 16,
    path: str = "auto",
    strict: bool = True,
) -> ValueReport:
    """Read the values of one call's tensors and say what is wrong with them. Synchronises with the device.

    Errors: a value that is not finite; g > 0; a fall of g by more than 80 within 16 tokens of a chunk, for a path
    that factors the exponentials (all but `fused` and `reference`; `auto` may take one that does). Warnings: keys
    whose length is not 1, beta outside 0…2.

    Layouts are those of `kda`. Raises: ShapeError and its kin, UsageError for a bad chunk or path, as `kda` does;
    ValueRangeError naming the first error, unless `strict` is false.
    """
    check_chunk(chunk)
    check_kda(q, k, v, g, beta, initial_state=initial_state)
    check_path(path)
    given = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "initial_state": initial_state}
    entries: list[ValueEntry] = []
    with torch.no_grad():
        finite = True
        for name, x in given.items():
            if x is not None and (wrong := int((~torch.isfinite(x)).sum())):
                entries.append(ValueEntry("error", name, f"{name} has {wrong} values that are not finite"))
                finite = False
        if finite and q.numel() and v.numel():
            entries += _decays(g, chunk, path)
            entries += _keys(k)
            entries += _gates(beta)
    report = ValueReport(tuple(entries))
    if strict and report.errors:
        raise ValueRangeError(report.errors[0].text)
    return report


def _decays(g: Tensor, chunk: int, path: str) -> list[ValueEntry]:
    found = []
    highest = float(g.max())
    if highest > 0:
        found.append(ValueEntry("error", "g", f"g reaches {highest:.4g}; it is a log decay and must be at most 0"))
    fall = _deepest_fall(g, chunk)
    if fall > RANGE and path not in _ANY_RANGE:
        text = f"g falls by {fall:.4g} within {BLOCK} tokens; path {path!r} holds for at most {RANGE:.0f}"
        found.append(ValueEntry("error", "g", text))
    return found


def _deepest_fall(g: Tensor, chunk: int) -> float:
    """The largest |sum of g| over the tokens of one block of 16 (blocks begin anew with each chunk)."""
    T = g.shape[1]
    position = torch.arange(T, device=g.device)
    block = (position // chunk) * -(-chunk // BLOCK) + (position % chunk) // BLOCK
    sums = g.new_zeros((g.shape[0], int(block[-1]) + 1, *g.shape[2:]), dtype=accumulate_dtype(g.dtype))
    return -float(sums.index_add_(1, block, g.to(sums.dtype)).min())


def _keys(k: Tensor) -> list[ValueEntry]:
    off = (torch.linalg.vector_norm(k, dim=-1, dtype=accumulate_dtype(k.dtype)) - 1).abs().max()
    if float(off) <= UNIT_SLACK:
        return []
    text = f"keys are off unit length by up to {float(off):.4g}; the state may grow without bound"
    return [ValueEntry("warning", "k", text)]


def _gates(beta: Tensor) -> list[ValueEntry]:
    low, high = float(beta.min()), float(beta.max())
    if low >= 0 and high <= LARGEST_BETA:
        return []
    text = f"beta runs from {low:.4g} to {high:.4g}; outside 0…{LARGEST_BETA:.0f} the state may grow without bound"
    return [ValueEntry("warning", "beta", text)]
