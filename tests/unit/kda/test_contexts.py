"""Each path in each context: right results, the path that was asked for, and a backward that is counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from kda_calls import Call, gradients, make_call, relative_l2, weighted
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kdaprof.kda import counters, gate_records, kda, record
from kdaprof.kda.reference import recurrent_gdn2
from kdaprof.kda.shapes import Operands

PATHS = ("fused", "tensor", "tensor-rows", "reference")
OURS = ("tensor", "tensor-rows", "reference")

pytestmark = pytest.mark.usefixtures("fused_on_cpu")


def op(path: str) -> Callable[..., Tensor]:
    return lambda *tensors: kda(*tensors, path=path)[0]


def expected(call: Call) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The recurrence in float64, past the gate and its books."""
    q, k, v, g, beta = inputs = [x.detach().double().requires_grad_() for x in call.tensors]
    gate = beta.unsqueeze(-1)
    o, _ = recurrent_gdn2(Operands(q, k, v, g, gate, gate), scale=call.k.shape[-1] ** -0.5)
    return o, gradients((o, None), tuple(inputs))


def assert_right(o: Tensor, grads: tuple[Tensor, ...], call: Call, bound: float = 1e-5) -> None:
    want, want_grads = expected(call)
    assert relative_l2(o, want) <= bound
    for got, right in zip(grads, want_grads, strict=True):
        assert relative_l2(got, right) <= bound


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("dtype", "bound"),
    [(torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 1e-2), (torch.float64, 1e-13)],
)
def test_plain(path: str, dtype: torch.dtype, bound: float) -> None:
    call = make_call(dtype=dtype)
    o = op(path)(*call.tensors)
    assert o.dtype is dtype
    assert_right(o, gradients((o, None), call.tensors), call, bound)
    assert str(counters()[path]) == "1/1"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape", [(1, 5, 1, 16, 16), (2, 33, 3, 48, 16), (1, 1, 1, 16, 80), (2, 16, 1, 16, 16)])
def test_odd_shapes(path: str, shape: tuple[int, ...]) -> None:
    call = make_call(*shape)
    o = op(path)(*call.tensors)
    assert_right(o, gradients((o, None), call.tensors), call)


@pytest.mark.parametrize("path", PATHS)
def test_autocast_changes_nothing(path: str) -> None:
    call = make_call()
    with record() as seen, torch.autocast("cpu", dtype=torch.bfloat16):
        o = op(path)(*call.tensors)
    assert o.dtype is torch.float32
    assert torch.equal(o, op(path)(*call.tensors))
    assert_right(o, gradients((o, None), call.tensors), call)
    assert seen.paths("fwd") == (path,)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(path: str, reentrant: bool) -> None:
    call = make_call()
    with record() as seen:
        o = checkpoint(op(path), *call.tensors, use_reentrant=reentrant)
        weighted(o).backward()
    assert_right(o, tuple(x.grad for x in call.tensors if x.grad is not None), call)
    assert sorted(r.phase for r in seen.records) == ["bwd", "fwd", "fwd"]  # the second forward is the recomputation
    assert seen.paths("fwd") == seen.paths("bwd") == (path,)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients(path: str, context: Callable[[], torch.no_grad]) -> None:
    call = make_call()
    with context():
        o = op(path)(*call.tensors)
    assert not o.requires_grad
    assert relative_l2(o, expected(call)[0]) <= 1e-5
    assert str(counters()[path]) == "1/0"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["q", "k", "v", "g", "beta"])
def test_gradients_for_one_input_alone(path: str, name: str) -> None:
    call = make_call(requires_grad=False)
    call = call.with_(**{name: getattr(call, name).clone().requires_grad_()})
    o = op(path)(*call.tensors)
    (got,) = gradients((o, None), (getattr(call, name),))
    index = ("q", "k", "v", "g", "beta").index(name)
    assert relative_l2(got, expected(call)[1][index]) <= 1e-5
    assert str(counters()[path]) == "1/1"


@pytest.mark.parametrize("path", PATHS)
def test_strides_are_free(path: str) -> None:
    call = make_call(B=2, T=20, H=3)

    def heads_first(x: Tensor) -> Tensor:
        return x.transpose(1, 2).contiguous().transpose(1, 2)

    def every_other(x: Tensor) -> Tensor:
        return torch.stack([x, torch.full_like(x, torch.nan)], dim=-1).flatten(-2)[..., ::2]

    want = op(path)(*call.tensors)
    for change in (heads_first, every_other):
        strided = call.map(change)
        assert not strided.q.is_contiguous()
        o = op(path)(*strided.tensors)
        assert relative_l2(o, want) <= 1e-6
        assert_right(o, gradients((o, None), strided.tensors), call)
    one_gate = call.beta.detach()[:, :1].expand_as(call.beta)
    o = op(path)(*call.with_(beta=one_gate).tensors)
    assert relative_l2(o, op(path)(*call.with_(beta=one_gate.contiguous()).tensors)) <= 1e-6


@pytest.mark.parametrize("path", OURS)
def test_an_empty_batch(path: str) -> None:
    call = make_call(B=0)
    o, state = kda(*call.tensors, output_final_state=True, path=path)
    assert state is not None
    assert (o.shape, state.shape) == (call.v.shape, (0, 2, 16, 32))
    (o.sum() + state.sum()).backward()
    assert all(x.grad is not None and x.grad.shape == x.shape for x in call.tensors)


@pytest.mark.parametrize("path", OURS)
def test_vmap_adds_a_dimension(path: str) -> None:
    call = make_call(B=1, T=20, requires_grad=False)
    many = [torch.stack([x, x * 0.9, x * 0.8]) for x in call.tensors]
    with record() as seen:
        o = torch.func.vmap(op(path))(*many)
    for i in range(3):
        assert relative_l2(o[i], op(path)(*(x[i] for x in many))) <= 1e-6
    assert seen.paths("fwd") == (path,)
    decision = seen.records[0].decision
    assert decision is not None
    assert "torch.func" in (decision.why_not("fused") or "")


@pytest.mark.parametrize("path", OURS)
def test_functional_gradients(path: str) -> None:
    call = make_call(B=1, T=20)
    q, rest = call.q.detach(), [x.detach() for x in call.tensors[1:]]
    got = torch.func.grad(lambda x: op(path)(x, *rest).square().sum())(q)
    (want,) = torch.autograd.grad(op(path)(*call.tensors).square().sum(), (call.q,))
    assert relative_l2(got, want) <= 1e-6
    many = torch.func.vmap(torch.func.grad(lambda x: op(path)(x, *rest).square().sum()))(torch.stack([q, q]))
    assert relative_l2(many[1], want) <= 1e-6


def test_auto_goes_back_to_fused_when_the_transform_is_over() -> None:
    call = make_call(B=1, T=20, requires_grad=False)
    many = [torch.stack([x, x]) for x in call.tensors]
    with record() as seen:
        kda(*call.tensors)
        with pytest.warns(UserWarning, match="torch.func"):
            torch.func.vmap(lambda *x: kda(*x)[0])(*many)
        kda(*call.tensors)
    assert [r.path for r in seen.records] == ["fused", "tensor", "fused"]


@pytest.mark.parametrize("path", PATHS)
def test_parameters(path: str) -> None:
    call = make_call()
    parameters = [nn.Parameter(x.detach().clone()) for x in call.tensors]
    o = op(path)(*parameters)
    assert_right(o, gradients((o, None), tuple(parameters)), call)


@pytest.mark.parametrize("path", OURS)
def test_meta_tensors_give_shapes(path: str) -> None:
    call = make_call().map(lambda x: x.to("meta"))
    o, state = kda(*call.tensors, output_final_state=True, path=path)
    assert state is not None
    assert (o.shape, o.device.type, state.shape) == (call.v.shape, "meta", (2, 2, 16, 32))


class TestCompile:
    """torch.compile: one graph, no recompilation, the decision taken when traced, nothing counted in the region."""

    @pytest.fixture(autouse=True)
    def fresh_dynamo(self) -> None:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()

    @pytest.mark.parametrize("path", ["tensor", "tensor-rows", "compiled", "reference"])
    def test_one_graph_and_one_trace(self, path: str) -> None:
        call = make_call(B=1, T=20)
        compiled = torch.compile(op(path), fullgraph=True, backend="aot_eager")
        with record() as seen:
            for _ in range(3):
                o = compiled(*call.tensors)
                grads = gradients((o, None), call.tensors)
        assert_right(o, grads, call)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
        assert not torch._dynamo.utils.counters["graph_break"]
        assert [(r.phase, r.path, r.traced) for r in seen.records] == [("fwd", path, True)]
        assert str(counters()) == "kda fused=0 tensor=0"
        assert [(t.decision.chosen, t.fwd, t.bwd, t.traced) for t in gate_records()] == [(path, 0, 0, 1)]

    def test_a_graph_in_between_other_operators(self) -> None:
        call = make_call(B=1, T=20)

        def layer(*tensors: Tensor) -> Tensor:
            return kda(*(2 * x / 2 for x in tensors), path="tensor")[0] + 1

        with torch.autocast("cpu", dtype=torch.bfloat16):
            o = torch.compile(layer, fullgraph=True, backend="aot_eager")(*call.tensors)
        assert relative_l2(o - 1, expected(call)[0]) <= 1e-5

    def test_new_lengths_recompile_no_more_than_torch_wants(self) -> None:
        compiled = torch.compile(op("tensor"), fullgraph=True, backend="eager", dynamic=False)
        for T in (16, 32, 16, 32):
            compiled(*make_call(B=1, T=T, requires_grad=False).tensors)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
        assert sum(t.traced for t in gate_records()) == 2

    def test_symbolic_extents_trace_whole_and_serve_every_length(self) -> None:
        """dynamic=True makes all extents symbols; the decision needs K and V alone, and makes constants of them."""
        compiled = torch.compile(op("tensor"), fullgraph=True, backend="eager", dynamic=True)
        for T in (19, 24, 33):
            call = make_call(B=1, T=T, seed=T, requires_grad=False)
            assert relative_l2(compiled(*call.tensors), expected(call)[0]) <= 1e-5

    def test_vmap_inside(self) -> None:
        call = make_call(B=1, T=20, requires_grad=False)
        many = [torch.stack([x, x * 0.9]) for x in call.tensors]
        with record() as seen:
            o = torch.compile(torch.func.vmap(op("tensor")), fullgraph=True, backend="eager")(*many)
        assert relative_l2(o[1], op("tensor")(*(x[1] for x in many))) <= 1e-6
        decision = seen.records[0].decision
        assert decision is not None
        assert decision.traced
        assert "torch.func" in (decision.why_not("fused") or "")

    @pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
    def test_errors_are_the_same_as_outside(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from kdaprof.errors import UnavailableError
        from kdaprof.kda import gate
        from kdaprof.kda.shapes import ShapeError

        call = make_call(B=1, T=20)
        compiled = torch.compile(lambda *x: kda(*x, path="fused")[0], backend="eager")
        with pytest.raises(ShapeError, match="beta"):
            compiled(*call.with_(beta=torch.zeros(1)).tensors)
        monkeypatch.setattr(gate, "_fused_support", lambda: lambda **_query: "no kernels here")
        with pytest.raises(UnavailableError, match="no kernels here"):
            compiled(*call.tensors)
