"""The fused kernels on a real card: accuracy, range, causality, addressing, views, launches, graphs, compile."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

LIMITS = {torch.float32: (1e-6, 1e-5), torch.bfloat16: (1e-2, 1e-2), torch.float16: (1e-2, 1e-2)}


def _oracle() -> ModuleType:
    path = Path(__file__).parents[1] / "unit" / "kda_fused" / "fused_oracle.py"
    spec = importlib.util.spec_from_file_location("fused_oracle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fused_oracle"] = module
    spec.loader.exec_module(module)
    return module


oracle = _oracle()


def check(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, **options: Any) -> None:
    from kdaprof.kda.fused import fused_kda

    got = oracle.against_recurrence(fused_kda, shape, dtype=dtype, device="cuda", **options)
    outputs, gradients = LIMITS[dtype]
    if options.get("precision") == "tf32":
        outputs = gradients = 1e-2
    errors = got["errors"]
    assert got["finite"]
    assert got["dtypes"] == got["want_dtypes"]
    text = " ".join(f"{name}={value:.2e}" for name, value in errors.items())
    assert all(errors[name] <= outputs for name in ("o", "ht") if name in errors), text
    assert all(value <= gradients for name, value in errors.items() if name.startswith("d")), text


@pytest.mark.parametrize("dtype", list(LIMITS), ids=str)
@pytest.mark.parametrize(
    "shape",
    [(2, 128, 3, 64, 64), (2, 67, 2, 48, 96), (1, 40, 2, 80, 16), (1, 50, 2, 128, 128),
     (3, 5, 1, 16, 32), (1, 1, 1, 32, 48)],
    ids=str,
)  # fmt: skip
def test_agrees_with_float64(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check(shape, dtype)


@pytest.mark.parametrize("precision", ["tf32x3", "ieee", "tf32"])
def test_production_shape(precision: str) -> None:
    check((10, 512, 12, 64, 64), precision=precision, states=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("low", "high"), [(-5.0, -5.0), (-5.0, 0.0), (0.0, 0.0)])
def test_range_of_g(low: float, high: float, dtype: torch.dtype) -> None:
    check((2, 100, 2, 64, 64), dtype, low=low, high=high)


@pytest.mark.parametrize("edit", ["strike", "same_keys"])
def test_hard_cases(edit: str) -> None:
    check((2, 100, 2, 64, 64), edit=getattr(oracle, edit))


def test_later_tokens_change_no_bit_of_earlier_outputs() -> None:
    from kdaprof.kda.fused import fused_kda

    made = oracle.inputs((1, 70, 2, 64, 64), -5.0, 0.0, torch.float32, "cuda")
    args = [made[name] for name in oracle.NAMES[:5]]
    before, _ = fused_kda(*args, scale=1.0)
    for t in (1, 2, 3, 7, 8, 15, 16, 17, 33, 69):
        for index in range(5):
            changed = [x.clone() for x in args]
            changed[index][:, t] = changed[index][:, t] * 0.5 - 0.25
            after, _ = fused_kda(*changed, scale=1.0)
            assert torch.equal(before[:, :t], after[:, :t]), (t, oracle.NAMES[index])
            assert not torch.equal(before[:, t:], after[:, t:])


def _grads(args: list[torch.Tensor], **options: Any) -> tuple[torch.Tensor, ...]:
    from kdaprof.kda.fused import fused_kda

    o, _ = fused_kda(*args, scale=0.5, **options)
    return (o, *torch.autograd.grad(o.float().square().sum(), args))


def test_two_runs_are_the_same_bits() -> None:
    made = oracle.inputs((4, 200, 8, 64, 64), -0.1, 0.0, torch.float32, "cuda")
    args = [made[name].requires_grad_() for name in oracle.NAMES[:5]]
    first = _grads(args)
    for _ in range(5):
        torch.empty(1 << 26, device="cuda").fill_(float("nan"))  # workspaces must not be read before written
        assert all(torch.equal(a, b) for a, b in zip(first, _grads(args), strict=True))


@pytest.mark.parametrize("dtype", list(LIMITS), ids=str)
def test_views_at_odd_offsets_and_strides(dtype: torch.dtype) -> None:
    made = oracle.inputs((2, 50, 3, 64, 64), -0.1, 0.0, dtype, "cuda")
    plain = [made[name].clone().requires_grad_() for name in oracle.NAMES[:5]]
    want = _grads(plain)
    for kind in ("offset", "transposed"):
        odd = []
        for x in plain:
            if kind == "offset":
                view = torch.empty(x.numel() + 1, dtype=dtype, device="cuda")[1:].view(x.shape).copy_(x.detach())
                assert view.data_ptr() % 16
            else:
                view = x.detach().transpose(1, 2).contiguous().transpose(1, 2)
                assert not view.is_contiguous()
            odd.append(view.requires_grad_())
        assert all(torch.equal(a, b) for a, b in zip(want, _grads(odd), strict=True)), kind


def test_a_forward_beyond_two_to_the_31_elements() -> None:
    from kdaprof.kda.fused import fused_kda

    shape = (129, 4096, 64, 64, 64)  # 2.16e9 elements a tensor
    if torch.cuda.mem_get_info()[0] < 90 << 30:
        pytest.skip("needs 90 GiB of free device memory")
    q, k, v = (torch.randn(shape[:4], device="cuda", dtype=torch.bfloat16).mul_(0.1) for _ in range(3))
    g = torch.rand(shape[:4], device="cuda", dtype=torch.bfloat16).mul_(-0.1)
    beta = torch.rand(shape[:3], device="cuda", dtype=torch.bfloat16)
    o, _ = fused_kda(q, k, v, g, beta, scale=0.125)
    last = [x[-1:].clone() for x in (q, k, v, g, beta)]
    assert torch.equal(o[-1:], fused_kda(*last, scale=0.125)[0])


def test_a_backward_whose_records_pass_two_to_the_31_elements() -> None:
    made = oracle.inputs((40, 1024, 64, 64, 64), -0.1, 0.0, torch.float32, "cuda")
    args = [made[name].requires_grad_() for name in oracle.NAMES[:5]]
    whole = _grads(args)
    last = [x.detach()[-1:].clone().requires_grad_() for x in args]
    assert all(torch.equal(a[-1:], b) for a, b in zip(whole, _grads(last), strict=True))


def test_launches_and_allocations_are_the_declared_ones() -> None:
    from kdaprof.kda.fused import ALLOCS, KERNEL_PREFIX, LAUNCHES, fused_kda

    made = oracle.inputs((2, 64, 2, 64, 64), -0.1, 0.0, torch.float32, "cuda")
    args = [made[name].requires_grad_() for name in oracle.NAMES[:5]]

    def count() -> int:
        return int(torch.cuda.memory_stats()["allocation.all.allocated"])

    for _ in range(2):
        o, _ = fused_kda(*args, scale=1.0)
        do = torch.ones_like(o)
        torch.autograd.grad(o, args, do)
    before = count()
    o, _ = fused_kda(*args, scale=1.0)
    between = count()
    torch.autograd.grad(o, args, do)
    assert (between - before, count() - between) == (ALLOCS["fwd"], ALLOCS["bwd"])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        o, _ = fused_kda(*args, scale=1.0)
        torch.autograd.grad(o, args, do)
        torch.cuda.synchronize()
    names = [event.name for event in seen.events() if event.name.startswith(KERNEL_PREFIX)]
    assert len([n for n in names if "_fwd_" in n]) == LAUNCHES["fwd"]
    assert len([n for n in names if "_bwd_" in n]) == LAUNCHES["bwd"]


def test_a_graph_replays_to_the_same_bits() -> None:
    from kdaprof.kda.fused import fused_kda

    made = oracle.inputs((2, 64, 2, 64, 64), -0.1, 0.0, torch.float32, "cuda")
    args = [made[name].requires_grad_() for name in oracle.NAMES[:5]]
    do = torch.randn_like(args[2])
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.autograd.grad(fused_kda(*args, scale=1.0)[0], args, do)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        o, _ = fused_kda(*args, scale=1.0)
        grads = torch.autograd.grad(o, args, do)
    with torch.no_grad():
        for x in args:
            x.mul_(0.9)
    graph.replay()
    want, _ = fused_kda(*args, scale=1.0)
    assert torch.equal(o, want)
    assert all(torch.equal(a, b) for a, b in zip(grads, torch.autograd.grad(want, args, do), strict=True))


def test_under_torch_compile_one_graph_and_the_same_bits() -> None:
    from kdaprof.kda.fused import fused_kda, fused_kda_op

    def step(*args: torch.Tensor) -> torch.Tensor:
        return fused_kda_op(*args, scale=1.0)[0] * 2

    made = oracle.inputs((2, 64, 2, 64, 64), -0.1, 0.0, torch.float32, "cuda")
    args = [made[name].requires_grad_() for name in oracle.NAMES[:5]]
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    got = compiled(*args)
    want = fused_kda(*args, scale=1.0)[0] * 2
    assert torch.equal(got, want)
    got, want = (torch.autograd.grad(x.square().sum(), args) for x in (got, want))
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_a_backward_may_be_called_again() -> None:
    """The backward writes into nothing that was saved."""
    from kdaprof.kda.fused import fused_kda

    made = oracle.inputs((2, 64, 2, 64, 64), -0.1, 0.0, torch.float32, "cuda")
    args = [made[name].requires_grad_() for name in oracle.NAMES[:5]]
    o, _ = fused_kda(*args, scale=1.0)
    do = torch.randn_like(o)
    first = torch.autograd.grad(o, args, do, retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(first, torch.autograd.grad(o, args, do), strict=True))


@pytest.mark.parametrize("reentrant", [False, True])
def test_under_a_checkpoint_the_same_bits(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    from kdaprof.kda.fused import fused_kda

    made = oracle.inputs((2, 64, 2, 48, 48), -0.1, 0.0, torch.float32, "cuda")  # sizes of its own: a first call too
    args = [made[name].requires_grad_() for name in oracle.NAMES[:5]]

    def step(*tensors: torch.Tensor) -> torch.Tensor:
        return fused_kda(*tensors, scale=1.0)[0]

    grads = []
    for o in (checkpoint(step, *args, use_reentrant=reentrant), step(*args)):
        for x in args:
            x.grad = None
        o.square().sum().backward()
        grads.append([x.grad for x in args])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_peak_memory_beyond_inputs_and_outputs_is_half_of_flas() -> None:
    """FLA 0.6.0 there: 144 MB forward, 254 MB with backward, of which o is 16 MB and the gradients 63 MB."""
    from kdaprof.kda.fused import fused_kda

    made = oracle.inputs((10, 512, 12, 64, 64), -0.1, 0.0, torch.float32, "cuda")
    args = [made[name].requires_grad_() for name in oracle.NAMES[:5]]
    do = torch.ones_like(args[2])

    def forward() -> tuple[torch.Tensor, ...]:
        return (fused_kda(*args, scale=1.0)[0],)

    def both() -> tuple[torch.Tensor, ...]:
        o = forward()[0]
        return (o, *torch.autograd.grad(o, args, do))

    for body, most in ((forward, 64e6), (both, 80e6)):
        body()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        outputs = body()
        torch.cuda.synchronize()
        beyond = torch.cuda.max_memory_allocated() - before - sum(x.numel() * 4 for x in outputs)
        assert 0 < beyond <= most


_FIRST_CALL = """
import torch
q, k, v, g = (torch.randn(10, 512, 12, 64, device="cuda").requires_grad_() for _ in range(4))
k = torch.nn.functional.normalize(k.detach(), dim=-1).requires_grad_()
beta = torch.rand(10, 512, 12, device="cuda").requires_grad_()
from kdaprof.kda.fused import fused_kda
o, _ = fused_kda(q, k, v, -g.abs(), beta, scale=0.125)
torch.autograd.grad(o, (q, k, v, g, beta), torch.ones_like(o))
torch.cuda.synchronize()
"""


def test_the_first_call_compiles_each_kernel_once(tmp_path: Path) -> None:
    """How long it takes: `python benchmarks/fused_kernels.py cold`."""
    from kdaprof.kda.fused import LAUNCHES

    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_CALL], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    compiled = sorted(path.stem for path in tmp_path.rglob("*.cubin"))
    assert len(compiled) == len(set(compiled)) == sum(LAUNCHES.values())


def test_an_entry_that_does_not_compile_is_skipped_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    from kdaprof.kda.fused import config, entries

    good = config.SAFE[32]
    bad = replace(good, recur_warps=3, back_warps=3)  # Triton wants powers of two
    monkeypatch.setattr(entries, "candidates", lambda *_: (bad, good))
    entries.choose_forward.cache_clear()
    entries.choose_backward.cache_clear()
    before = len(entries.skipped())
    check((1, 40, 1, 32, 32), states=False)
    found = entries.skipped()[before:]
    assert {entry.phase for entry in found} == {"fwd", "bwd"}
    assert {entry.card for entry in found} == {"sm_{}{}".format(*torch.cuda.get_device_capability())}
    assert all(entry.reason for entry in found)
    entries.choose_forward.cache_clear()
    entries.choose_backward.cache_clear()


def test_a_launch_hook_sees_every_kernel_and_none_once_it_is_gone() -> None:
    """Launches pass Triton's bookkeeping by, but not a profiler that hangs in it."""
    from triton import knobs

    from kdaprof.kda.fused import LAUNCHES, fused_kda

    made = oracle.inputs((1, 64, 1, 32, 32), -0.1, 0.0, torch.float32, "cuda")
    args = [made[name].requires_grad_() for name in oracle.NAMES[:5]]
    seen: list[str] = []

    def hook(metadata: Any) -> None:
        seen.append(metadata.get()["name"])

    def step() -> list[torch.Tensor]:
        o = fused_kda(*args, scale=1.0)[0]
        return [o, *torch.autograd.grad(o, args, torch.ones_like(o))]

    plain = step()
    knobs.runtime.launch_enter_hook.add(hook)
    try:
        watched = step()
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    assert len(seen) == sum(LAUNCHES.values())
    assert all(name.startswith("kdaprof_kda_") for name in seen)
    plain_again = step()
    assert len(seen) == sum(LAUNCHES.values())
    for one, other, third in zip(plain, watched, plain_again, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, third)
