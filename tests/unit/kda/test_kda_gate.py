"""The gate decides by what tensors are, gives every refusal its real reason, and never swaps a path silently."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from kda_calls import make_call
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from kdaprof.errors import Exit, UnavailableError
from kdaprof.kda import KdaFallbackWarning, api, counters, fused, gate, gate_records, gdn2, kda, record
from kdaprof.kda.decision import PATHS
from kdaprof.kda.gate import GateQuery, decide
from kdaprof.kda.surroundings import any_overrides_dispatch

QUERY = GateQuery("kda", "auto", "cuda", torch.float32, 64, 64, 16)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decide as on a machine whose Triton works."""
    from kdaprof.kda.fused import support

    monkeypatch.setattr(support, "triton_missing", lambda: None)
    support.refusal.cache_clear()


@pytest.mark.usefixtures("gpu")
def test_auto_takes_fused_and_says_why_not_the_others() -> None:
    decision = decide(QUERY)
    assert decision.chosen == "fused"
    assert [r.path for r in decision.refused] == [p for p in PATHS if p != "fused"]
    assert decision.why_not("tensor") == "auto prefers fused"
    assert decision.why_not("fused") is None


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"device_type": "cpu"}, "device cpu"),
        ({"device_type": "meta"}, "device meta"),
        ({"dtype": torch.float64}, "float64"),
        ({"k_dim": 72}, "K = 72"),
        ({"v_dim": 256}, "V = 256"),
        ({"chunk": 64}, "chunk 64"),
        ({"op": "gdn2"}, "KDA"),
        ({"functorch": True}, "torch.func"),
    ],
)
def test_each_refusal_has_its_real_reason(change: dict[str, object], reason: str) -> None:
    decision = decide(replace(QUERY, **change))  # type: ignore[arg-type]
    assert decision.chosen == "tensor"
    assert reason in (decision.why_not("fused") or "")
    with pytest.raises(UnavailableError, match="path 'fused' cannot run") as raised:
        decide(replace(QUERY, asked="fused", **change))  # type: ignore[arg-type]
    assert reason in str(raised.value)
    assert raised.value.exit_code is Exit.UNFIT


def test_a_broken_installation_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ImportError("libtriton.so: undefined symbol")

    monkeypatch.setattr(gate, "_fused_support", broken)
    assert "libtriton.so: undefined symbol" in (decide(QUERY).why_not("fused") or "")


def test_a_named_path_is_taken_whatever_auto_would_do() -> None:
    for path in ("tensor", "tensor-rows", "reference"):
        decision = decide(replace(QUERY, asked=path))
        assert decision.chosen == path
        assert len(decision.refused) == len(PATHS) - 1


def test_fused_that_cannot_run_raises_and_runs_nothing() -> None:
    with record() as seen, pytest.raises(UnavailableError, match="device cpu"):
        kda(*make_call().tensors, path="fused")
    assert seen.records == ()
    assert gate_records() == ()


def test_falling_back_is_said_once_for_each_reason() -> None:
    call = make_call()
    with pytest.warns(KdaFallbackWarning, match="fused refused: device cpu"):
        kda(*call.tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kda(*call.tensors)
        kda(*make_call(T=50).tensors)
    with pytest.warns(KdaFallbackWarning, match="chunk 32"):
        kda(*call.tensors, chunk=32)


def test_gdn2_has_nothing_to_fall_back_from() -> None:
    call = make_call()
    with warnings.catch_warnings(), record() as seen:
        warnings.simplefilter("error")
        gdn2(*call.tensors[:4], torch.rand_like(call.k), torch.rand_like(call.v))
    decision = seen.records[0].decision
    assert decision is not None
    assert decision.chosen == "tensor"
    assert "KDA" in (decision.why_not("fused") or "")


class Plain(Tensor):
    """A subclass that changes nothing, such as wrappers of distributed training leave behind."""


def as_subclass(x: Tensor) -> Tensor:
    return x.detach().as_subclass(Plain).requires_grad_(x.requires_grad)


@pytest.mark.usefixtures("fused_on_cpu")
@pytest.mark.parametrize("wrap", [lambda x: nn.Parameter(x.detach()), as_subclass, nn.Buffer, lambda x: x * 1])
def test_wrapped_tensors_take_the_fused_path(wrap: object) -> None:
    call = make_call()
    wrapped = [wrap(x) for x in call.tensors]  # type: ignore[operator]
    with record() as seen:
        o, _ = kda(*wrapped)
        if o.requires_grad:
            o.sum().backward()
    assert seen.paths("fwd") == ("fused",)
    assert seen.paths("bwd") == (("fused",) if o.requires_grad else ())
    torch.testing.assert_close(o.detach().as_subclass(Tensor), kda(*call.tensors, path="tensor")[0].detach())


def test_only_tensors_that_answer_operators_themselves_go_through_the_operator() -> None:
    x = torch.zeros(2)
    assert not any_overrides_dispatch((x, nn.Parameter(x), x.as_subclass(Plain), None))
    with FakeTensorMode() as mode:
        assert any_overrides_dispatch((x, mode.from_tensor(x)))


@pytest.mark.usefixtures("fused_on_cpu")
def test_fake_tensors_never_reach_the_kernels_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    by_address, stand_in = [], fused.fused_kda
    monkeypatch.setattr(fused, "fused_kda", lambda *a, **k: by_address.append(1) or stand_in(*a, **k))
    call = make_call(requires_grad=False)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(x) for x in call.tensors]
        o, _ = kda(*fake, path="fused")
    assert o.shape == call.v.shape
    kda(*fake, path="fused")  # outside the mode the tensors are still fake
    assert by_address == []
    kda(*call.tensors, path="fused")
    assert by_address == [1]


def test_the_gate_costs_little() -> None:
    """About 2.4 µs on an idle core; the bound allows for a loaded machine, not for another algorithm."""
    import time

    call = make_call(requires_grad=False)
    x = api.Operands(*call.tensors, call.beta)
    kda(*call.tensors, path="tensor")

    def once() -> None:
        plan = api._plans[api._key("kda", x, None, 16, "tensor")]
        api.note_forward(plan.tally)

    best = float("inf")
    for _ in range(20):
        start = time.perf_counter_ns()
        for _ in range(500):
            once()
        best = min(best, (time.perf_counter_ns() - start) / 500)
    assert best < 10_000


def test_the_table_of_plans_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_MOST_PLANS", 4)
    for T in range(1, 9):
        kda(*make_call(B=1, T=T, H=1, requires_grad=False).tensors, path="tensor")
    assert len(api._plans) <= 4
    assert counters()["tensor"].fwd == 8
