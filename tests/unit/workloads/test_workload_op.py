"""The op as a case: what the clock sees of each phase, what comes out, and that nothing accumulates (case 13)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kdaprof.errors import UnavailableError
from kdaprof.kda import kda
from kdaprof.kda.ledger import record
from kdaprof.runs.cells import CONTEXTS, CellKey, make_shape
from kdaprof.workloads import contexts
from kdaprof.workloads.contexts import wrap
from kdaprof.workloads.inputs import INPUT_NAMES
from kdaprof.workloads.op import CaseSpec, OpCase, op_of, trains

GRADS = tuple(f"d{name}" for name in INPUT_NAMES)
EAGER_CONTEXTS = tuple(c for c in CONTEXTS if c != "compile")
TRAINING = tuple(c for c in EAGER_CONTEXTS if c not in ("no_grad", "inference"))


def case(path: str = "tensor", phase: str = "fwd", context: str = "plain", *, sets: int = 1, heads: int = 1) -> OpCase:
    key = CellKey("kda", path, context, "eager", phase, make_shape("kda", (2, 20, heads, 16, 16, 16)), "float32")
    return OpCase(CaseSpec(key=key, device="cpu", seed=0, input_sets=sets))


def expected(made: OpCase) -> dict[str, torch.Tensor]:
    """Output and gradients of the current set, in double, by the recurrence."""
    args = [t.detach().double().requires_grad_() for t in made.current.tensors()]
    o, _ = kda(*args, path="reference")
    return {"o": o.detach(), **dict(zip(GRADS, torch.autograd.grad(o, args, made.current.do.double()), strict=True))}


def close(got: torch.Tensor, want: torch.Tensor) -> bool:
    return float((got.double() - want).norm() / want.norm()) < 1e-5


# ---------------------------------------------------------------- phases


def test_which_phases_train() -> None:
    assert [trains(phase) for phase in ("fwd", "bwd", "fwdbwd")] == [False, True, True]


@pytest.mark.parametrize(
    ("phase", "inside", "outputs"),
    [
        ("fwd", {"fwd": 1}, ("o",)),
        ("bwd", {"bwd": 1}, ("o", *GRADS)),
        ("fwdbwd", {"fwd": 1, "bwd": 1}, ("o", *GRADS)),
    ],
)
def test_the_clock_sees_the_phase_and_nothing_else(
    phase: str, inside: dict[str, int], outputs: tuple[str, ...]
) -> None:
    made = case(phase=phase)
    made.prepare(0)
    with record() as seen:
        made.run()
    assert {p: sum(r.phase == p for r in seen.records) for p in inside} == inside
    assert len(seen.records) == sum(inside.values())
    assert tuple(made.outputs()) == outputs
    want = expected(made)
    assert all(close(value, want[name]) for name, value in made.outputs().items())


def test_a_forward_alone_records_no_graph() -> None:
    made = case(phase="fwd")
    made.run()
    assert not made.outputs()["o"].requires_grad
    assert not any(t.requires_grad for t in made.current.tensors())


@pytest.mark.parametrize("context", TRAINING)
@pytest.mark.parametrize("phase", ["bwd", "fwdbwd"])
def test_gradients_are_made_anew_each_time_and_accumulate_nowhere(context: str, phase: str) -> None:
    made = case(phase=phase, context=context)
    runs = []
    for _ in range(3):
        made.prepare(0)
        made.run()
        runs.append({name: value.clone() for name, value in made.outputs().items()})
    for again in runs[1:]:
        assert again.keys() == runs[0].keys()
        assert all(torch.equal(again[name], runs[0][name]) for name in again)
    made.prepare(0)
    assert all(t.grad is None for t in made.current.tensors())


def test_running_twice_without_a_reset_accumulates_nothing_either() -> None:
    """As a capture does: its warm-up calls follow each other."""
    for context in ("plain", "checkpoint-reentrant"):
        made = case(phase="fwdbwd", context=context)
        made.prepare(0)
        made.run()
        first = {name: value.clone() for name, value in made.outputs().items()}
        made.run()
        assert all(torch.equal(value, first[name]) for name, value in made.outputs().items())


def test_a_backward_can_be_timed_again_after_its_own_forward() -> None:
    made = case(phase="bwd")
    with pytest.raises(AssertionError):
        made.run()
    for _ in range(2):
        made.prepare(0)
        made.run()


def test_what_the_last_call_made_is_dropped_before_the_next() -> None:
    made = case(phase="fwdbwd")
    made.run()
    made.prepare(0)
    assert made.outputs() == {}


def test_sets_rotate() -> None:
    made = case(sets=3)
    seen = []
    for index in range(4):
        made.prepare(index)
        made.run()
        seen.append(made.outputs()["o"].clone())
    assert torch.equal(seen[0], seen[3])
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_an_op_of_ones_own_takes_the_place_of_the_paths() -> None:
    made = case("reference")
    other = OpCase(made.spec, op=op_of("tensor", 16))
    with record() as seen:
        other.run()
    assert [r.path for r in seen.records] == ["tensor"]


def test_the_chunk_reaches_the_op(monkeypatch: pytest.MonkeyPatch) -> None:
    from kdaprof.workloads import op as module

    seen: list[tuple[int, str]] = []

    def spy(*args: torch.Tensor, chunk: int, path: str) -> tuple[torch.Tensor, None]:
        seen.append((chunk, path))
        return args[2], None

    monkeypatch.setattr(module, "kda", spy)
    op_of("tensor", 8)(*case().current.tensors())
    assert seen == [(8, "tensor")]


# ---------------------------------------------------------------- contexts


@pytest.mark.parametrize("context", EAGER_CONTEXTS)
def test_every_context_gives_the_right_output(context: str) -> None:
    made = case(context=context)
    made.prepare(0)
    with record() as seen:
        made.run()
    assert {r.path for r in seen.records} == {"tensor"}
    assert close(made.outputs()["o"], expected(made)["o"])


@pytest.mark.parametrize("context", TRAINING)
def test_every_training_context_gives_the_right_gradients(context: str) -> None:
    made = case(phase="fwdbwd", context=context)
    made.prepare(0)
    made.run()
    want = expected(made)
    names = ("o", "dv") if context == "partial-grad" else ("o", *GRADS)
    assert tuple(made.outputs()) == names
    assert all(close(value, want[name]) for name, value in made.outputs().items())


@pytest.mark.parametrize("context", ["no_grad", "inference"])
@pytest.mark.parametrize("phase", ["bwd", "fwdbwd"])
def test_no_backward_where_there_is_none(context: str, phase: str) -> None:
    with pytest.raises(UnavailableError, match=f"phase {phase} does not exist in context {context}"):
        case(phase=phase, context=context)


def test_an_unknown_context_names_those_there_are() -> None:
    with pytest.raises(UnavailableError, match="context 'amp' is unknown; known: plain, no_grad"):
        wrap("amp", op_of("tensor", 16), "cpu")


def spied(context: str, *, heads: int = 1) -> list[object]:
    """What an op sees of its surroundings, a list a call."""
    seen: list[object] = []

    def op(*args: torch.Tensor) -> torch.Tensor:
        seen.append(
            {
                "grad": torch.is_grad_enabled(),
                "inference": torch.is_inference_mode_enabled(),
                "autocast": torch.is_autocast_enabled("cpu"),
                "asks": [t.requires_grad for t in args],
                "strided": [not t.is_contiguous() for t in args],
            }
        )
        return args[2] * args[0].sum()

    wrapped = wrap(context, op, "cpu")
    tensors = case(phase="fwdbwd", heads=heads).current.tensors()
    with wrapped.around():
        wrapped.call(*tensors)
    return seen


@pytest.mark.parametrize(
    ("context", "field", "inside"),
    [
        ("plain", "grad", True),
        ("no_grad", "grad", False),
        ("inference", "inference", True),
        ("autocast", "autocast", True),
        ("plain", "autocast", False),
        ("partial-grad", "asks", [False, False, True, False, False]),
        ("plain", "asks", [True] * 5),
        ("non-contiguous", "strided", [True] * 5),
        ("plain", "strided", [False] * 5),
    ],
)
def test_what_the_op_sees_inside(context: str, field: str, inside: object) -> None:
    (seen,) = spied(context)
    assert isinstance(seen, dict)
    assert seen[field] == inside


def test_arguments_are_strided_with_several_heads_too() -> None:
    (seen,) = spied("non-contiguous", heads=3)
    assert isinstance(seen, dict)
    assert seen["strided"] == [True] * 5


def test_surroundings_are_put_back() -> None:
    for context in ("no_grad", "inference", "autocast"):
        spied(context)
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
        assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("context", ["checkpoint", "checkpoint-reentrant"])
def test_checkpointing_runs_the_forward_again_in_the_backward(context: str) -> None:
    made = case(phase="fwdbwd", context=context)
    with record() as seen:
        made.run()
    assert [r.phase for r in seen.records].count("fwd") == 2


def test_reentrant_checkpoints_write_into_the_leaves() -> None:
    assert wrap("checkpoint-reentrant", op_of("tensor", 16), "cpu").into_leaves
    assert not wrap("checkpoint", op_of("tensor", 16), "cpu").into_leaves


def test_vmap_hands_the_op_tensors_without_the_outer_axis() -> None:
    shapes: list[tuple[int, ...]] = []
    functorch: list[bool] = []

    def op(*args: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(args[0].shape))
        functorch.append(torch._C._functorch.is_functorch_wrapped_tensor(args[0]))
        return args[2] * 2

    tensors = case().current.tensors()
    o = wrap("vmap", op, "cpu").call(*tensors)
    assert (shapes, functorch) == ([(2, 20, 1, 16)], [True])
    assert torch.equal(o, tensors[2] * 2)


def test_ddp_wraps_a_module_that_trains_along() -> None:
    wrapped = wrap("ddp", op_of("tensor", 16), "cpu")
    assert isinstance(wrapped.call, torch.nn.parallel.DistributedDataParallel)
    assert sum(p.numel() for p in wrapped.call.parameters()) == 1


def test_ddp_without_torch_distributed_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    with pytest.raises(UnavailableError, match=r"built without torch\.distributed"):
        wrap("ddp", op_of("tensor", 16), "cpu")


@pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("cuda", "nccl"), ("cuda:1", "nccl")])
def test_ddp_takes_the_backend_of_the_device(monkeypatch: pytest.MonkeyPatch, device: str, backend: str) -> None:
    class Stop(Exception):
        pass

    def init(name: str, **_: object) -> None:
        raise Stop(name)

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.distributed, "init_process_group", init)
    with pytest.raises(Stop, match=backend):
        wrap("ddp", op_of("tensor", 16), device)


@pytest.mark.parametrize(("device", "kind"), [("cpu", "cpu"), ("cuda", "cuda"), ("cuda:1", "cuda")])
def test_autocast_takes_the_kind_of_device(monkeypatch: pytest.MonkeyPatch, device: str, kind: str) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch, "autocast", lambda name, dtype: asked.append(name))
    wrap("autocast", op_of("tensor", 16), device).around()
    assert asked == [kind]


# ---------------------------------------------------------------- compile


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """torch.compile without its code generation; the list grows by one a compilation."""
    made: list[object] = []
    real = torch.compile

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., object]:
        made.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", lambda op: real(op, backend=backend))
    return made


def test_compile_compiles_once_a_cell_is_right_and_keeps_the_gates_decision(compiled: list[object]) -> None:
    made = case(context="compile")
    with record() as seen:
        for _ in range(3):
            made.prepare(0)
            made.run()
    assert len(compiled) == 1
    assert [(r.path, r.traced) for r in seen.records] == [("tensor", True)]
    assert close(made.outputs()["o"], expected(made)["o"])


def test_more_cells_than_dynamo_keeps_variants_are_all_compiled(compiled: list[object]) -> None:
    def op_like(factor: int) -> Callable[..., torch.Tensor]:
        return lambda *args: factor * args[0]

    x = torch.ones(2)
    for number in range(torch._dynamo.config.recompile_limit + 3):
        cell = wrap("compile", op_like(number), "cpu")
        assert torch.equal(cell.call(x), number * x)
        assert len(compiled) == number + 1


def test_a_callable_that_is_no_function_is_compiled_as_it_is() -> None:
    class Op:
        def __call__(self, *args: torch.Tensor) -> torch.Tensor:
            return args[0]

    op = Op()
    assert contexts._with_own_code(op) is op
