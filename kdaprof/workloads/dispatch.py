"""The op wrapped for the dispatch matrix: the contexts of cells, and inputs that only an exact type test tells apart.

A gate that compares an exact type sends wrapped tensors down another path than plain ones. So the matrix also calls
with parameters and with a tensor subclass, which are tensors in every respect that matters to a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from kdaprof.runs.cells import CONTEXTS
from kdaprof.workloads.contexts import Op
from kdaprof.workloads.inputs import INPUT_NAMES, make_inputs
from kdaprof.workloads.op import CaseSpec, OpCase

PARAMETER = "parameter"
SUBCLASS = "subclass"
DISPATCH_CONTEXTS = (*CONTEXTS, PARAMETER, SUBCLASS)


class Tagged(torch.Tensor):
    """A subclass that changes nothing, as those of data loaders and of distributed wrappers do."""


def dispatch_case(context: str, spec: CaseSpec, op: Op) -> OpCase:
    """`op` in `context`, ready to be called once. `spec.key.context` must be `plain` where the inputs are wrapped.

    torch.compile runs without code generation here: the gate decides when the call is traced, and that is the same
    for every backend. Errors: UnavailableError for a context that this torch or machine cannot give.
    """
    if context in _WRAPPED:
        plain = make_inputs(spec.inputs(), 0)
        wrapped = {name: _WRAPPED[context](getattr(plain, name)) for name in INPUT_NAMES}
        return OpCase(spec, sets=(replace(plain, **wrapped),), op=op)
    if context == "compile":
        return OpCase(spec, op=torch.compile(op, backend="aot_eager", dynamic=False))
    return OpCase(spec, op=op)


def key_context(context: str) -> str:
    """The context of cells that `dispatch_case` wants in `spec.key`."""
    return "plain" if context in _WRAPPED or context == "compile" else context


def _parameter(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nn.Parameter(tensor.detach(), requires_grad=tensor.requires_grad)


def _tagged(tensor: torch.Tensor) -> torch.Tensor:
    tagged: torch.Tensor = tensor.detach().as_subclass(Tagged)
    return tagged.requires_grad_(tensor.requires_grad)


_WRAPPED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {PARAMETER: _parameter, SUBCLASS: _tagged}
