"""The declared counts are counted again on the op as it is: launches by dispatched operation, allocations by bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kda_calls import make_call
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from kdaprof.kda import fused, kda
from kdaprof.kda.declared import _LAWS, _reference, declared_counts
from kdaprof.kda.shapes import OpShape

CUDA_LAUNCHES = {
    "aten::select_backward": 2,  # fills, then copies
    "aten::slice_backward": 2,
    "aten::constant_pad_nd": 2,
    "aten::linalg_solve_triangular": 4,  # a copy, two tables of pointers, the solve
    "aten::eye": 2,
    "aten::empty": 0,
    "aten::new_empty_strided": 0,
    "aten::detach": 0,
    "aten::_unsafe_view": 0,
}


class Launches(TorchDispatchMode):
    """Counts what each operation launches on CUDA; views launch nothing."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.count += CUDA_LAUNCHES.get(func.name().split(".")[0], 1)
        return func(*args, **(kwargs or {}))


def phases(path: str, T: int, chunk: int, dtype: torch.dtype) -> tuple[Callable[[], None], Callable[[], None]]:
    """Forward and backward of one call, to be run one after the other."""
    call = make_call(B=1, T=T, dtype=dtype)
    weight = torch.ones(call.v.shape, dtype=dtype)
    out: list[torch.Tensor] = []

    def forward() -> None:
        out.append(kda(*call.tensors, chunk=chunk, path=path)[0])

    def backward() -> None:
        torch.autograd.grad(out.pop(), call.tensors, weight)

    return forward, backward


def launches(run: Callable[[], None]) -> int:
    with Launches() as mode:
        run()
    return mode.count


def allocations(run: Callable[[], None]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    events = seen.profiler.kineto_results.events()  # type: ignore[union-attr]
    return sum(e.name() == "[memory]" and e.nbytes() > 0 for e in events)


CASES = [
    pytest.param(32, 16, torch.float32, id="2 chunks"),
    pytest.param(48, 16, torch.float32, id="3 chunks"),
    pytest.param(128, 16, torch.float32, id="8 chunks"),
    pytest.param(125, 16, torch.float32, id="tail"),
    pytest.param(64, 32, torch.float32, id="two blocks"),
    pytest.param(256, 64, torch.float32, id="four blocks"),
    pytest.param(64, 16, torch.bfloat16, id="half"),
]


@pytest.mark.parametrize("path", ["tensor", "tensor-rows"])
@pytest.mark.parametrize(("T", "chunk", "dtype"), CASES)
def test_the_law_is_exact_for_launches(path: str, T: int, chunk: int, dtype: torch.dtype) -> None:
    for phase, run in zip(("fwd", "bwd"), phases(path, T, chunk, dtype), strict=True):
        law = _LAWS[path][phase].at(-(-T // chunk), chunk, padded=T % chunk != 0, half=dtype != torch.float32)
        assert law.launches == launches(run), phase


@pytest.mark.parametrize("path", ["tensor", "tensor-rows"])
@pytest.mark.parametrize(("T", "chunk", "dtype"), CASES)
def test_the_law_is_near_for_allocations(path: str, T: int, chunk: int, dtype: torch.dtype) -> None:
    """Some operations allocate inside, which differs between versions and processors: two calls of slack."""
    for phase, run in zip(("fwd", "bwd"), phases(path, T, chunk, dtype), strict=True):
        law = _LAWS[path][phase].at(-(-T // chunk), chunk, padded=T % chunk != 0, half=dtype != torch.float32)
        assert abs(law.allocs - allocations(run)) <= 2, phase


@pytest.mark.parametrize(("T", "dtype"), [(2, torch.float32), (9, torch.float32), (9, torch.float16)])
def test_the_law_of_the_recurrence(T: int, dtype: torch.dtype) -> None:
    for phase, run in zip(("fwd", "bwd"), phases("reference", T, 16, dtype), strict=True):
        assert _reference(phase, T, half=dtype != torch.float32).launches == launches(run)


PRODUCTION = OpShape(10, 512, 12, 64, 64)
MEASURED = {  # one H200, torch 2.11, 32 chunks of 16, float32: launches and allocations of a path of each form
    ("tensor", "fwd"): (287, 282),
    ("tensor", "fwdbwd"): (1379, 924),
    ("compiled", "fwd"): (236, 78),
    ("compiled", "fwdbwd"): (607, 279),
    ("tensor-rows", "fwd"): (345, 341),
}


@pytest.mark.parametrize("cell", MEASURED)
def test_measured_counts_confirm_their_path(cell: tuple[str, str]) -> None:
    counts = declared_counts(*cell, PRODUCTION, 16, "float32")
    assert counts is not None
    seen_launches, seen_allocs = MEASURED[cell]
    assert counts.launches[0] <= seen_launches <= counts.launches[1]
    assert counts.allocs[0] <= seen_allocs <= counts.allocs[1]


OTHERS = [
    (cell, label)
    for cell in MEASURED
    for label in ("fused", "tensor", "tensor-rows", "compiled", "reference")
    if label != cell[0]
]


@pytest.mark.parametrize(("cell", "label"), OTHERS)
def test_measured_counts_contradict_every_other_label(cell: tuple[str, str], label: str) -> None:
    _, phase = cell
    counts = declared_counts(label, phase, PRODUCTION, 16, "float32")
    assert counts is not None
    seen_launches, seen_allocs = MEASURED[cell]
    inside = (
        counts.launches[0] <= seen_launches <= counts.launches[1]
        and counts.allocs[0] <= seen_allocs <= counts.allocs[1]
    )
    assert not inside


def test_fused_declares_what_its_kernels_declare() -> None:
    forward = declared_counts("fused", "fwd", PRODUCTION, 16, "float32")
    both = declared_counts("fused", "fwdbwd", PRODUCTION, 16, "float32")
    assert forward is not None
    assert both is not None
    assert forward.launches == (fused.LAUNCHES["fwd"],) * 2
    assert both.launches == (sum(fused.LAUNCHES.values()),) * 2
    assert both.allocs[0] == sum(fused.ALLOCS.values())


def test_checkpointing_runs_the_forward_again() -> None:
    def launches_of(phase: str, context: str) -> tuple[int, int]:
        counts = declared_counts("fused", phase, PRODUCTION, 16, "float32", context=context)
        assert counts is not None
        return counts.launches

    once, again = fused.LAUNCHES["fwd"], fused.LAUNCHES["fwd"] + fused.LAUNCHES["bwd"]
    assert launches_of("fwd", "checkpoint") == (once, once)
    assert launches_of("bwd", "checkpoint") == (again, again)
    assert launches_of("fwdbwd", "checkpoint-reentrant") == (once + again, once + again)
    assert launches_of("fwdbwd", "autocast") == launches_of("fwdbwd", "plain")


@pytest.mark.parametrize(
    ("path", "phase", "shape", "context"),
    [
        ("flashkda", "fwd", PRODUCTION, "plain"),
        ("tensor", "opt", PRODUCTION, "plain"),
        ("tensor", "fwd", OpShape(0, 512, 12, 64, 64), "plain"),
        ("tensor", "fwd", PRODUCTION, "vmap"),
    ],
)
def test_where_no_law_holds_nothing_is_declared(path: str, phase: str, shape: OpShape, context: str) -> None:
    assert declared_counts(path, phase, shape, 16, "float32", context=context) is None
