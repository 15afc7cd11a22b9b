"""Workloads that are one call of a library, `mha` and `gemm`: what each says of itself, by one interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Protocol

import torch

from kdaprof.runs.cells import CellKey
from kdaprof.runs.record import PathSignature, Work
from kdaprof.workloads.gemm import call as gemm
from kdaprof.workloads.inputs import Inputs
from kdaprof.workloads.mha import call as mha


class Library(Protocol):
    """A module of this shape is a workload. Its paths are the library's own ways of making the same call."""

    AGAINST: str
    """What results are compared with."""

    def inputs(self, key: CellKey, *, device: str, seed: int, index: int, grad: bool) -> Inputs:
        """Set number `index`."""
        ...

    def op(self, key: CellKey, device: str) -> Callable[..., torch.Tensor]:
        """The call on the key's path; UnavailableError, now or in its first call, where there is no such path."""
        ...

    def reference(self, given: Inputs, *, backward: bool) -> dict[str, torch.Tensor]:
        """The output `o`, and gradients, in float64 on the same values."""
        ...

    def tolerance(self, key: CellKey) -> float:
        """Relative L2 that the key's path must keep."""
        ...

    def set_bytes(self, key: CellKey) -> int:
        """Bytes of one input set."""
        ...

    def work(self, key: CellKey) -> Work:
        """Operations and compulsory bytes of one call."""
        ...

    def signatures(self, key: CellKey) -> tuple[PathSignature, ...]:
        """Kernel names that speak for each path."""
        ...

    def chosen(self, key: CellKey, operators: dict[str, int]) -> str | None:
        """The path that a call took, by the operators that ran and the library's settings behind it."""
        ...

    def settings(self) -> AbstractContextManager[None]:
        """Puts back what calls change in the library, afterwards."""
        ...


LIBRARIES: Mapping[str, Library] = MappingProxyType({"mha": mha, "gemm": gemm})
"""By workload."""
