"""FLA's dispatcher, asked without a call: which backend would take one, and why each other one would not.

A call of FLA tunes for minutes, and its log keeps the first refusal alone (FlashKDA#18). Its backends decide by
verifiers that look at tensors and keywords, and run nothing: they are asked here, by dtype, head size and keyword.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final

import torch
from torch import Tensor

from kdaprof.instruments.device import Device
from kdaprof.kda.peers.facts import facts_of
from kdaprof.probe.dispatch.matrix import one_line
from kdaprof.probe.dispatch.peers import package_missing
from kdaprof.runs.cells import make_shape
from kdaprof.runs.dispatch import DispatchRow
from kdaprof.runs.record import Refusal
from kdaprof.workloads.delta.call import delta_inputs
from kdaprof.workloads.inputs import InputSpec, make_inputs

OP: Final = "fla-gate"
DIMS: Final = (128, 64)
RAW: Final = "raw-gates"
_OWN: Final = "fla"
"""FLA's own kernels, which take what no backend takes."""
_KEYWORDS: Final = (
    "use_gate_in_kernel",
    "use_qk_l2norm_in_kernel",
    "use_beta_sigmoid_in_kernel",
    "safe_gate",
    "state_v_first",
)
CONTEXTS: Final = ("grad", "no_grad", RAW, *(f"{RAW}-no-{keyword}" for keyword in _KEYWORDS))
"""`raw-gates`: without gradients, with every keyword that has the kernels apply the gates; then with one left out."""
_EVERYWHERE: Final = ("grad", "no_grad")


@dataclass(frozen=True, slots=True)
class Answer:
    """The backend that would take the call, and the others with their reasons."""

    chosen: str
    refused: tuple[Refusal, ...]


def gate_rows(device: Device, *, dtypes: Sequence[str], contexts: Sequence[str] = CONTEXTS) -> Iterator[DispatchRow]:
    """Rows for `chunk_kda` and `chunk_gated_delta_rule`; one a dtype, with the reason, where FLA cannot be asked."""
    for workload in ("kda", "gdn"):
        facts = facts_of("fla", workload)
        missing = package_missing("fla", f"{facts.module}.{facts.function}")
        asked = [name for name in CONTEXTS if name in contexts and (workload == "kda" or name in _EVERYWHERE)]
        for context in asked if missing is None else asked[:1]:
            dims = DIMS if context in _EVERYWHERE and missing is None else DIMS[:1]
            for dim, dtype in itertools.product(dims, dtypes):
                row = DispatchRow(
                    op=f"{OP} {workload}", context=context, dtype=dtype, status="unavailable", chosen=None,
                    shape=dict(make_shape(workload, (1, 64, 2, dim, dim, 64))), detail=missing,
                )  # fmt: skip
                yield row if missing is not None else _row(row, workload, device)


def _row(row: DispatchRow, workload: str, device: Device) -> DispatchRow:
    facts = facts_of("fla", workload)
    name = "cpu" if device.index is None else f"cuda:{device.index}"
    grad = row.context == "grad"
    shape = tuple(row.shape.items())
    spec = InputSpec(shape=shape, dtype=row.dtype, device=name, seed=0, requires_grad=grad)
    made = make_inputs(spec, 0) if workload == "kda" else delta_inputs(workload, spec, 0)
    function = getattr(importlib.import_module(facts.module), facts.function)
    try:
        with torch.set_grad_enabled(grad):
            answer = ask(function, made.tensors(), keywords(row.context, row.shape, name))
    except Exception as error:  # another's package, asked past its public names
        return replace(row, detail=f"this version cannot be asked: {type(error).__name__}: {one_line(error)}")
    settings = tuple(f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith("FLA_"))
    return replace(row, status="ok", chosen=answer.chosen, refused=answer.refused, ran=settings)


def keywords(context: str, sizes: Mapping[str, int], device: str) -> dict[str, object]:
    """The keywords of a call in `context`; those of raw gates come with the tensors that they need."""
    if not context.startswith(RAW):
        return {}
    without = context.removeprefix(f"{RAW}-no-")
    given: dict[str, object] = {keyword: True for keyword in _KEYWORDS if keyword != without}
    heads, keys = sizes["H"], sizes["K"]
    a_log, bias = torch.zeros(heads, device=device), torch.zeros(heads * keys, device=device)
    return given | {"lower_bound": -5.0, "A_log": a_log, "dt_bias": bias}


def ask(function: Callable[..., Any], tensors: Sequence[Tensor], given: Mapping[str, object]) -> Answer:
    """What the dispatcher of `function` would do with this call. Nothing runs on a device.

    Errors: whatever a version raises that keeps its backends in another way.
    """
    backends = importlib.import_module("fla.backends")
    if os.environ.get("FLA_DISABLE_BACKEND_DISPATCH") == "1":
        return Answer(_OWN, (Refusal(path="every backend", reason="FLA_DISABLE_BACKEND_DISPATCH=1"),))
    bare = inspect.unwrap(function)
    refused: list[Refusal] = []
    chosen = None
    for backend in _candidates(backends, bare):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reason = _refusal(backend, bare.__name__, tensors, given)
        if reason is None and chosen is None:
            chosen = backend.backend_type
        else:
            refused.append(Refusal(path=backend.backend_type, reason=reason or f"{chosen} comes first"))
    if chosen is not None:
        refused.append(Refusal(path=_OWN, reason=f"{chosen} takes it"))
    return Answer(chosen or _OWN, tuple(refused))


def _candidates(backends: Any, function: Callable[..., Any]) -> list[Any]:
    """The backends that have an implementation of `function`, in the order in which they are tried."""
    registries = [backends._function_registries.get(function)]
    registries += [
        registry
        for operation, registry in backends._operation_registries.items()
        if function.__module__.startswith(f"fla.ops.{operation}.")
    ]
    found = [one for registry in registries if registry is not None for one in registry._get_sorted_backends()]
    return [one for one in found if one.get_implementation(function.__name__) is not None]


def _refusal(backend: Any, name: str, tensors: Sequence[Tensor], given: Mapping[str, object]) -> str | None:
    """Every reason that can be had: absent or switched off, and what its verifier says of the call."""
    reasons = []
    if not backend.is_available():
        package = backend.package_name
        absent = package is not None and find_spec(package.partition(".")[0]) is None
        reasons.append(f"package {package} is not installed" if absent else "not for this machine")
    elif not backend.is_enabled():
        reasons.append(f"switched off ({backend.env_var})")
    accepted, told = backend.verify(name, *tensors, **given)
    if not accepted:
        reasons.append(str(told) if told else "refused without a reason")
    return "; ".join(reasons) or None
