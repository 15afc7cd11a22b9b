"""Every path of the op on an NVIDIA GPU: right, causal, counted, and recognised by its kernels and its counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from kdaprof.analysis.evidence import judge_path
from kdaprof.analysis.view import KernelRow
from kdaprof.kda import counters, kda, record, reset_counters
from kdaprof.kda.declared import declared_counts
from kdaprof.kda.shapes import OpShape
from kdaprof.kda.signatures import SIGNATURES
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.record import CellRecord, Observed
from kdaprof.runs.results import Evidence

pytestmark = pytest.mark.gpu

PATHS = ("fused", "tensor", "tensor-rows")
PRODUCTION = OpShape(10, 512, 12, 64, 64)
SMALL = OpShape(2, 200, 3, 64, 48)

Inputs = tuple[Tensor, ...]


def make_inputs(shape: OpShape, *, dtype: torch.dtype = torch.float32, requires_grad: bool = True) -> Inputs:
    """The field's operating point: unit q and k, beta around 0.5, log decay around -0.054."""
    random = torch.Generator().manual_seed(0)
    B, T, H, K, V = shape.B, shape.T, shape.H, shape.K, shape.V

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=random)

    values = (
        F.normalize(normal(B, T, H, K), dim=-1),
        F.normalize(normal(B, T, H, K), dim=-1),
        normal(B, T, H, V),
        -0.108 * torch.rand(B, T, H, K, generator=random),
        torch.sigmoid(normal(B, T, H)),
    )
    return tuple(x.to("cuda", dtype).requires_grad_(requires_grad) for x in values)


def grads_of(o: Tensor, inputs: Inputs) -> Inputs:
    weight = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).to(o.device, o.dtype)
    return torch.autograd.grad(o, inputs, weight)


def relative_l2(x: Tensor, reference: Tensor) -> float:
    x, reference = x.detach().double(), reference.detach().double()
    return float((x - reference).norm() / reference.norm())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("dtype", "forward", "backward"), [(torch.float32, 1e-6, 1e-5), (torch.bfloat16, 1e-2, 1e-2)])
def test_right_against_float64(path: str, dtype: torch.dtype, forward: float, backward: float) -> None:
    inputs = make_inputs(SMALL, dtype=dtype)
    exact = tuple(x.detach().double().requires_grad_() for x in inputs)
    o, _ = kda(*inputs, path=path)
    want, _ = kda(*exact, path="reference")
    assert relative_l2(o, want) <= forward
    for x, y in zip(grads_of(o, inputs), grads_of(want, exact), strict=True):
        assert relative_l2(x, y) <= backward


@pytest.mark.parametrize("path", PATHS)
def test_no_token_is_seen_before_its_time(path: str) -> None:
    q, k, v, g, beta = make_inputs(SMALL, requires_grad=False)
    before, _ = kda(q, k, v, g, beta, path=path)
    for t in (1, 9, 16, 37, 150):
        later = g.clone()
        later[:, t:] *= 7
        after, _ = kda(q, k, v, later, beta, path=path)
        assert torch.equal(after[:, :t], before[:, :t])
        assert not torch.equal(after[:, t:], before[:, t:])


def test_auto_takes_fused_and_counts_both_directions() -> None:
    inputs = make_inputs(SMALL)
    reset_counters()
    with record() as seen:
        o, _ = kda(*inputs)
        grads_of(o, inputs)
    assert str(counters()) == "kda fused=1/1 tensor=0"
    assert [(r.phase, r.path) for r in seen.records] == [("fwd", "fused"), ("bwd", "fused")]


@pytest.mark.parametrize("path", PATHS)
def test_contexts_of_a_training_step(path: str) -> None:
    inputs = make_inputs(SMALL)
    want, _ = kda(*inputs, path=path)
    want_grads = grads_of(want, inputs)

    def op(*tensors: Tensor) -> Tensor:
        return kda(*tensors, path=path)[0]

    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert relative_l2(op(*inputs), want) <= 1e-6
    again = checkpoint(op, *inputs, use_reentrant=False)
    for x, y in zip(grads_of(again, inputs), want_grads, strict=True):
        assert relative_l2(x, y) <= 1e-6
    with torch.inference_mode():
        assert relative_l2(op(*inputs), want) <= 1e-6


def test_compiled_around_fused_is_one_graph_and_counts_nothing() -> None:
    inputs = make_inputs(SMALL)
    want, _ = kda(*inputs, path="fused")
    want_grads = grads_of(want, inputs)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    layer = torch.compile(lambda *x: kda(*x, path="fused")[0], fullgraph=True, backend="aot_eager")
    reset_counters()
    with record() as seen:
        for _ in range(2):
            o = layer(*inputs)
            grads = grads_of(o, inputs)
    assert str(counters()) == "kda fused=0 tensor=0"
    assert [(r.phase, r.path, r.traced) for r in seen.records] == [("fwd", "fused", True)]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert relative_l2(o, want) <= 1e-6
    assert all(relative_l2(x, y) <= 1e-6 for x, y in zip(grads, want_grads, strict=True))


@pytest.mark.parametrize("path", PATHS)
def test_in_a_captured_graph_only_the_capture_speaks(path: str) -> None:
    inputs = make_inputs(SMALL, requires_grad=False)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            kda(*inputs, path=path)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    reset_counters()
    with record() as seen, torch.cuda.graph(graph):
        o, _ = kda(*inputs, path=path)
    assert [(r.path, r.captured) for r in seen.records] == [(path, True)]
    with record() as replayed:
        inputs[2].mul_(2)
        graph.replay()
    assert replayed.records == ()
    assert counters()[path].fwd == 1
    assert relative_l2(o, kda(*inputs, path=path)[0]) <= 1e-6


def device_events(run: Callable[[], object]) -> list[str]:
    """Names of the kernels, copies and fills of one warm call."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    results = seen.profiler.kineto_results  # type: ignore[union-attr]
    return [e.name() for e in results.events() if e.device_type() == DeviceType.CUDA]


def allocations(run: Callable[[], object]) -> int:
    run()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    run()
    return int(torch.cuda.memory_stats()["allocation.all.allocated"] - before)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("phase", ["fwd", "fwdbwd"])
def test_kernels_and_counts_bear_witness_to_their_path_and_to_no_other(path: str, phase: str) -> None:
    inputs = make_inputs(PRODUCTION, requires_grad=phase == "fwdbwd")
    weight = torch.ones_like(inputs[2].detach())

    def run() -> None:
        o, _ = kda(*inputs, path=path)
        if phase == "fwdbwd":
            torch.autograd.grad(o, inputs, weight)

    names, allocs = device_events(run), allocations(run)
    for label in PATHS:
        evidence = judge(label, phase, names, allocs)
        says = {witness.name: witness.says for witness in evidence.witnesses}
        if label == path:
            assert (says["kernels"], says["counts"]) == (path, path), evidence
        else:
            assert evidence.verdict == "contradicted", evidence


def judge(label: str, phase: str, names: list[str], allocs: int) -> Evidence:
    """What kernels and counts say of a call under a label; the gate is not asked."""
    counts = declared_counts(label, phase, PRODUCTION, 16, "float32")
    assert counts is not None
    shape = make_shape("kda", (PRODUCTION.B, PRODUCTION.T, PRODUCTION.H, PRODUCTION.K, PRODUCTION.V, 16))
    key = CellKey("kda", label, "plain", "eager", phase, shape, "float32")
    observed = Observed(device="cuda", signatures=SIGNATURES, declared=counts)
    rows = [KernelRow(name=name, calls=names.count(name), busy_ns=names.count(name)) for name in sorted(set(names))]
    return judge_path(CellRecord(key=key, status="ok", observed=observed), rows, len(names), allocs)
