"""Inputs of a call by name, whatever the workload: what a case rotates through, differentiates and copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

SET_STRIDE = 1_000_003
"""Between the seeds of two runs: no set of one is a set of the other."""


@dataclass(frozen=True, slots=True)
class NamedInputs:
    """Arguments of `workload` under their names; `do` is empty where nothing is differentiated."""

    workload: str
    named: Mapping[str, torch.Tensor]
    do: torch.Tensor

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments."""
        return tuple(self.named)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The arguments in order."""
        return tuple(self.named.values())

    def like(self, tensors: tuple[torch.Tensor, ...], do: torch.Tensor) -> NamedInputs:
        """The same arguments with other tensors."""
        return NamedInputs(self.workload, dict(zip(self.named, tensors, strict=True)), do)


def generator(device: str, seed: int, index: int) -> torch.Generator:
    """The source of set number `index` on its own device: the same values in every process on that kind of device."""
    return torch.Generator(device=device).manual_seed(seed * SET_STRIDE + index)
