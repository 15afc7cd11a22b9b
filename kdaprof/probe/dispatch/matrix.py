"""The rows of our own op: contexts × dtypes at one shape, and shapes × dtypes in a plain call."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kdaprof.analysis.evidence import judge_path
from kdaprof.errors import KdaprofError, UnavailableError
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.device import Device
from kdaprof.kda.decision import AUTO
from kdaprof.kda.declared import declared_counts
from kdaprof.kda.shapes import OpShape
from kdaprof.kda.signatures import SIGNATURES
from kdaprof.probe.dispatch.seen import kernels_of_call
from kdaprof.probe.witness import observe_gate
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.dispatch import DispatchRow
from kdaprof.runs.record import CellRecord, DeclaredCounts, Observed
from kdaprof.workloads.dispatch import dispatch_case, key_context
from kdaprof.workloads.op import CaseSpec, OpCase, op_of

CHUNK = 16
BASE = (2, 32, 2, 32, 32)
SHAPES = (
    BASE,
    (2, 37, 2, 32, 32),  # a last chunk that is not full
    (1, 24, 2, 32, 48),  # K ≠ V
    (2, 5, 2, 32, 32),  # shorter than a chunk
    (1, 24, 2, 40, 40),  # no multiple of 16
    (0, 24, 2, 32, 32),  # an empty batch
)
"""B, T, H, K, V: small, since a gate looks at what tensors are and not at how large they are."""

# torch.func differentiates by levels of its own, where no backward is counted: vmap is looked at forward.
_FORWARD_ALONE = ("no_grad", "inference", "vmap")


def op_rows(
    device: Device,
    *,
    contexts: Sequence[str],
    dtypes: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    path: str = AUTO,
) -> Iterator[DispatchRow]:
    """One row a context and dtype at the first shape; for the other shapes a row a dtype, plain."""
    for context in contexts:
        for dtype in dtypes:
            yield op_row(device, context, dtype, shapes[0], path)
    for sizes in shapes[1:] if "plain" in contexts else ():
        for dtype in dtypes:
            yield op_row(device, "plain", dtype, sizes, path)


def op_row(device: Device, context: str, dtype: str, sizes: tuple[int, ...], path: str = AUTO) -> DispatchRow:
    """Call the op once, forward and, where there is one, backward. What goes wrong is the row's `detail`."""
    shape = make_shape("kda", (*sizes, CHUNK))
    phase = "fwd" if context in _FORWARD_ALONE else "fwdbwd"
    row = DispatchRow(op="kda", context=context, dtype=dtype, shape=dict(shape), status="ok", chosen=None)
    try:
        with _quietly(), _distributed(context):
            return _called(device, row, CellKey("kda", path, key_context(context), "eager", phase, shape, dtype))
    except UnavailableError as error:
        return replace(row, status="unavailable", detail=one_line(error))
    except (KdaprofError, RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        return replace(row, status="failed", detail=f"{type(error).__name__}: {one_line(error)}")


def _called(device: Device, row: DispatchRow, key: CellKey) -> DispatchRow:
    name = "cpu" if device.index is None else f"cuda:{device.index}"
    spec = CaseSpec(key=key, device=name, seed=0, input_sets=1)
    case = dispatch_case(row.context, spec, op_of(key.path, key.size("C")))
    gate = observe_gate(lambda: _once(case))
    chosen = gate.chosen
    if chosen is None:
        ways = ", ".join(f"{path} {n}" for path, n in (gate.forward | gate.backward).items())
        return replace(row, status="failed", detail=f"calls went different ways: {ways or 'the gate was not asked'}")
    cell = replace(key, path=chosen, context=row.context if row.context == "compile" else key.context)
    observed = Observed(
        device="cuda" if device.kind == "cuda" else "cpu",
        declared=_declared(cell, row),
        signatures=SIGNATURES,
        gate=gate,
    )
    seen = kernels_of_call(lambda: _once(case), device, MonotonicClock())
    record = CellRecord(key=cell, status="ok", observed=observed)
    evidence = judge_path(record, seen.kernels, seen.launches, None)
    return replace(row, chosen=chosen, refused=gate.refused, evidence=evidence)


def _once(case: OpCase) -> None:
    case.prepare(0)
    case.run()


def _declared(cell: CellKey, row: DispatchRow) -> DeclaredCounts | None:
    if row.context not in ("plain", "no_grad", "inference"):
        return None
    extents = OpShape(*(cell.size(axis) for axis in ("B", "T", "H", "K", "V")))
    return declared_counts(cell.path, cell.phase, extents, cell.size("C"), cell.dtype, context=row.context)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """The table says what a warning would: that a call fell back, and why."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _distributed(context: str) -> Iterator[None]:
    """Context `ddp` opens a process group of one; it is closed again where it was not there before."""
    if context != "ddp":
        yield
        return
    import torch.distributed as dist  # noqa: PLC0415

    before = dist.is_available() and dist.is_initialized()
    try:
        yield
    finally:
        if dist.is_available() and dist.is_initialized() and not before:
            dist.destroy_process_group()


def one_line(error: BaseException) -> str:
    """The first line; torch adds its C++ stack below."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
