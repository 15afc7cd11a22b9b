"""A launch: which goes through the compiled handle, by which way, and with addresses or tensors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kdaprof.kda.fused import plan, run, stage  # noqa: E402
from kdaprof.kda.fused.config import SAFE  # noqa: E402


class Handle:
    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *arguments: self.launches.append((grid, arguments))


class Kernel:
    """Stands for a JIT function: each long launch compiles a handle."""

    arg_names = ("x", "n", "A", "B")

    def __init__(self, compiles: bool = True) -> None:
        self.compiles = compiles
        self.launches: list[tuple[Any, ...]] = []
        self.handles: list[Handle] = []
        self.warmed: list[tuple[Any, ...]] = []

    def warmup(self, *arguments: Any, grid: tuple[int, ...], **named: Any) -> Handle:
        self.warmed.append((grid, arguments, named))
        self.handles.append(Handle())
        return self.handles[-1]

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **named: Any) -> Handle | None:
            self.launches.append((grid, arguments, named))
            self.handles.append(Handle())
            return self.handles[-1] if self.compiles else None

        return launch


def test_the_second_aligned_launch_takes_the_handle_with_constants_in_the_kernels_order() -> None:
    kernel = Kernel()
    made = stage.Stage(kernel, {"B": 2, "A": 1}, num_warps=4)
    made(7, True, "x", 3)
    made(8, True, "y", 4)
    assert kernel.launches == [((7,), ("x", 3), {"B": 2, "A": 1, "num_warps": 4})]
    assert kernel.handles[0].launches == [((8, 1, 1), ("y", 4, 1, 2))]


def test_an_unaligned_pointer_never_meets_the_handle() -> None:
    kernel = Kernel()
    made = stage.Stage(kernel, {"A": 1, "B": 2})
    for aligned in (False, True, False):
        made(1, aligned, "x", 3)
    assert len(kernel.launches) == 3
    assert all(not handle.launches for handle in kernel.handles)
    made(1, True, "x", 3)
    assert len(kernel.handles[1].launches) == 1


def test_the_interpreter_has_no_handle() -> None:
    kernel = Kernel(compiles=False)
    made = stage.Stage(kernel, {"A": 1, "B": 2})
    for _ in range(3):
        made(1, True, "x", 3)
    assert len(kernel.launches) == 3


def test_a_stage_compiled_ahead_launches_through_its_handle() -> None:
    kernel = Kernel()
    made = stage.Stage(kernel, {"A": 1, "B": 2}, num_warps=1)
    made.compile(torch.float32, 3)
    made.compile(torch.float32, 3)
    assert kernel.warmed == [((1,), (torch.float32, 3), {"A": 1, "B": 2, "num_warps": 1})]
    made(5, True, "x", 3)
    assert kernel.launches == []
    assert kernel.handles[0].launches == [((5, 1, 1), ("x", 3, 1, 2))]


class Whole(Handle):
    """A handle with what Triton's own has beside."""

    def __init__(self) -> None:
        super().__init__()
        self.function, self.packed_metadata = 77, (4, 1, 0)
        self.runs: list[tuple[Any, ...]] = []

    def run(self, *arguments: Any) -> None:
        self.runs.append(arguments)


def fake_triton(monkeypatch: pytest.MonkeyPatch, enter: Any = None, leave: Any = None) -> None:
    active = SimpleNamespace(get_current_device=lambda: 3, get_current_stream=lambda device: 1000 + device)
    knobs = SimpleNamespace(launch_enter_hook=enter, launch_exit_hook=leave)
    monkeypatch.setattr(stage, "_triton", lambda: (SimpleNamespace(active=active), knobs))


def ready(handle: Handle) -> stage.Stage:
    made = stage.Stage(Kernel(), {"A": 1, "B": 2})
    made._keep(handle)
    return made


@pytest.mark.parametrize("hooks", [None, SimpleNamespace(calls=[])])
def test_a_handle_runs_on_the_current_stream_with_no_hook_between(monkeypatch: pytest.MonkeyPatch, hooks: Any) -> None:
    fake_triton(monkeypatch, hooks, hooks)
    handle = Whole()
    ready(handle)(5, True, "x", 3)
    assert handle.launches == []
    assert handle.runs == [(5, 1, 1, 1003, 77, (4, 1, 0), None, None, None, "x", 3, 1, 2)]


@pytest.mark.parametrize("which", ["enter", "leave"])
@pytest.mark.parametrize("hook", [SimpleNamespace(calls=[print]), print])
def test_who_hangs_in_a_launch_hook_is_told(monkeypatch: pytest.MonkeyPatch, which: str, hook: Any) -> None:
    fake_triton(monkeypatch, **{which: hook})
    handle = Whole()
    ready(handle)(5, True, "x", 3)
    assert handle.runs == []
    assert handle.launches == [((5, 1, 1), ("x", 3, 1, 2))]


def test_tritons_handle_has_what_the_short_way_takes() -> None:
    """Its launcher's order of arguments is checked on a GPU; here, that the names and hooks are still there."""
    from triton import knobs
    from triton.compiler.compiler import CompiledKernel

    assert isinstance(CompiledKernel.run, property)
    assert "packed_metadata" in CompiledKernel.__init__.__code__.co_names
    assert "function" in CompiledKernel._init_handles.__code__.co_names
    assert not stage._hooked(knobs.runtime.launch_enter_hook)
    assert not stage._hooked(knobs.runtime.launch_exit_hook)


class Recorder:
    """Stands for a stage and notes what it is launched with."""

    def __init__(self, compiled: bool) -> None:
        self.compiled = compiled
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, grid: int, aligned: bool, *arguments: Any) -> None:
        self.seen.append((grid, aligned, *arguments))


def inputs(offset: int = 0) -> list[torch.Tensor]:
    """q, k, v, g, beta of `[1, 32, 1, 16]`, q shifted by `offset` elements."""
    whole = torch.zeros(32 * 16 + offset)
    q = whole[offset:].view(1, 32, 1, 16)
    return [q, *(torch.zeros(1, 32, 1, 16) for _ in range(3)), torch.zeros(1, 32, 1)]


@pytest.mark.parametrize(("compiled", "offset", "addresses"), [(True, 0, True), (True, 1, False), (False, 0, False)])
@pytest.mark.parametrize("home", [True, False])
def test_addresses_take_the_tensors_place_only_where_a_handle_will_have_them(
    compiled: bool, offset: int, addresses: bool, home: bool
) -> None:
    q, k, v, g, beta = inputs(offset)
    stages = [Recorder(compiled) for _ in range(5)]
    forward = plan.ForwardPlan(32, 1, *stages[:2])  # type: ignore[arg-type]
    _, _, rec = run.run_forward(forward, q, k, v, g, beta, None, 1.0, True)
    backward = plan.BackwardPlan(32, 1, home, *stages[2:])  # type: ignore[arg-type]
    run.run_backward(backward, q, k, v, g, beta, None, rec, torch.zeros_like(v), None, 1.0)
    first, pairs = stages[0].seen[0], stages[4].seen[0]
    assert first[1] is (offset == 0)
    assert first[2] == q.data_ptr() if addresses else first[2] is q
    assert pairs[2] == q.data_ptr() if addresses else pairs[2] is q


@pytest.mark.parametrize("home", [True, False])
def test_a_launch_with_addresses_has_the_same_arguments_as_one_with_tensors(home: bool) -> None:
    """Each pointer is its tensor's, in the same place; numbers are the same."""
    q, k, v, g, beta = inputs()
    device, dtypes = torch.device("cpu"), (torch.float32,) * 5
    config = SAFE[16]
    real = plan.forward_plan(config, device, (*dtypes, None), 16, 16, False, "tf32x3")
    assert not real.compiled
    seen = []
    for compiled in (True, False):
        stages = [Recorder(compiled) for _ in range(5)]
        _, _, rec = run.run_forward(
            plan.ForwardPlan(real.record, 1, *stages[:2]),
            q,
            k,
            v,
            g,
            beta,
            None,
            1.0,
            False,  # type: ignore[arg-type]
        )
        backward = plan.BackwardPlan(32, 1, home, *stages[2:])  # type: ignore[arg-type]
        run.run_backward(backward, q, k, v, g, beta, None, rec, v, None, 1.0)
        seen.append([x.seen[0] for x in stages])
    given = {x.data_ptr() for x in (q, k, v, g, beta)}
    for short, long in zip(*seen, strict=True):
        assert len(short) == len(long)
        for at, tensor in zip(short, long, strict=True):
            if isinstance(tensor, torch.Tensor) and tensor.data_ptr() in given:
                assert at == tensor.data_ptr()
            elif not isinstance(tensor, torch.Tensor):
                assert at == tensor
