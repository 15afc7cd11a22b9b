"""The rows of FLA's `chunk_kda`: which kernels a call really runs, since FLA may hand it to another backend."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch

from kdaprof.analysis.evidence import judge_path
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.device import Device
from kdaprof.kda.peers.facts import installed_version
from kdaprof.kda.peers.loading import is_bare_folder
from kdaprof.kda.signatures import SIGNATURES
from kdaprof.probe.dispatch.matrix import one_line
from kdaprof.probe.dispatch.seen import kernels_of_call
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.dispatch import DispatchRow
from kdaprof.runs.record import CellRecord, Observed
from kdaprof.workloads.inputs import InputSpec, make_inputs

SIZES = (1, 64, 2, 128, 128)
CHUNK = 64
CONTEXTS = ("plain", "no_grad")


def package_missing(name: str, needed: str) -> str | None:
    """The real reason why `needed` of package `name` cannot be used: absent, broken with its error, or too old."""
    module, _, attribute = needed.rpartition(".")
    spec = find_spec(name)
    if spec is None or is_bare_folder(spec):
        return f"package {name} is not installed"
    try:
        found = importlib.import_module(module)
    except Exception as error:  # a broken install raises anything
        return f"import of {module} failed: {type(error).__name__}: {one_line(error)}"
    version = installed_version((name,)) or ""
    return None if hasattr(found, attribute) else f"{name} {version} has no {needed}: another version"


def peer_rows(device: Device, *, dtypes: Sequence[str], contexts: Sequence[str] = CONTEXTS) -> Iterator[DispatchRow]:
    """A row a context and dtype; without the package or a GPU the row says so."""
    for context in (name for name in CONTEXTS if name in contexts):
        for dtype in dtypes:
            yield _row(device, context, dtype)


def _row(device: Device, context: str, dtype: str) -> DispatchRow:
    shape = make_shape("kda", (*SIZES, CHUNK))
    row = DispatchRow(op="fla", context=context, dtype=dtype, shape=dict(shape), status="unavailable", chosen=None)
    missing = package_missing("fla", "fla.ops.kda.chunk_kda")
    if missing is None and device.kind != "cuda":
        missing = "fla's Triton kernels need a GPU"
    if missing is not None:
        return replace(row, detail=missing)
    settings = tuple(f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith("FLA_"))
    key = CellKey("kda", "fla", "plain", "eager", "fwd", shape, dtype)
    inputs = make_inputs(
        InputSpec(shape=shape, dtype=dtype, device=f"cuda:{device.index}", seed=0, requires_grad=False), 0
    )
    call = _call_of(importlib.import_module("fla.ops.kda").chunk_kda, inputs.tensors(), grad=context == "plain")
    try:
        call()
        seen = kernels_of_call(call, device, MonotonicClock())
    except Exception as error:  # what another's package raises is not ours to know
        return replace(row, status="failed", detail=f"{type(error).__name__}: {one_line(error)}")
    observed = Observed(device="cuda", signatures=SIGNATURES)
    evidence = judge_path(CellRecord(key=key, status="ok", observed=observed), seen.kernels, None, None)
    says = next((witness.says for witness in evidence.witnesses if witness.name == "kernels"), None)
    return replace(row, status="ok", chosen=says, evidence=evidence, ran=settings)


def _call_of(op: Callable[..., Any], tensors: Sequence[torch.Tensor], *, grad: bool) -> Callable[[], None]:
    q, k, v, g, beta = tensors

    def call() -> None:
        with torch.set_grad_enabled(grad):
            op(q=q, k=k, v=v, g=g, beta=beta)

    return call
