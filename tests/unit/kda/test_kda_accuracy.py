"""The recurrence against its formula by hand; the chunk form against the recurrence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kda_calls import Call, gradients, make_call, relative_l2
from torch import Tensor

from kdaprof.kda import gdn2, kda

CHUNKED = ("tensor", "tensor-rows")


def by_hand(call: Call, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The recurrence in numpy, a head at a time, from its formula."""
    q, k, v, g, beta = (x.detach().numpy() for x in call.tensors)
    B, T, H, K = q.shape
    V = v.shape[3]
    o, states = np.zeros((B, T, H, V)), np.zeros((B, H, K, V))
    for batch in range(B):
        for head in range(H):
            S = np.zeros((K, V))
            for t in range(T):
                at = (batch, t, head)
                S = np.diag(np.exp(g[at])) @ S
                S = S + np.outer(k[at], beta[at] * v[at] - (beta[at] * k[at]) @ S)
                o[at] = scale * S.T @ q[at]
            states[batch, head] = S
    return o, states


def test_the_recurrence_is_the_formula() -> None:
    call = make_call(B=2, T=9, H=2, K=5, V=3, dtype=torch.float64, g=0.7)
    o, state = kda(*call.tensors, scale=0.3, output_final_state=True, path="reference")
    want_o, want_state = by_hand(call, 0.3)
    np.testing.assert_allclose(o.detach().numpy(), want_o, rtol=1e-13, atol=1e-14)
    assert state is not None
    np.testing.assert_allclose(state.detach().numpy(), want_state, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("path", ["reference", *CHUNKED])
def test_gradients_are_those_of_finite_differences(path: str) -> None:
    call = make_call(B=1, T=5, H=1, K=3, V=2, dtype=torch.float64, g=0.5)
    assert torch.autograd.gradcheck(lambda *xs: kda(*xs, chunk=4, path=path)[0], call.tensors)


def test_the_default_scale_is_the_root_of_k() -> None:
    call = make_call(K=16)
    o, state = kda(*call.tensors, path="tensor")
    assert state is None
    torch.testing.assert_close(o, kda(*call.tensors, scale=0.25, path="tensor")[0], rtol=0, atol=0)


CASES = [
    pytest.param(16, 40, 16, 32, id="tail"),
    pytest.param(16, 48, 48, 16, id="K-over-V"),
    pytest.param(16, 5, 16, 16, id="T-below-C"),
    pytest.param(16, 1, 16, 16, id="one-token"),
    pytest.param(32, 70, 16, 32, id="two-blocks"),
    pytest.param(64, 130, 16, 16, id="four-blocks"),
    pytest.param(24, 50, 16, 16, id="short-block"),
    pytest.param(7, 30, 5, 3, id="odd"),
]


@pytest.mark.parametrize("path", CHUNKED)
@pytest.mark.parametrize(("chunk", "T", "K", "V"), CASES)
def test_chunk_form_is_the_recurrence_in_float64(path: str, chunk: int, T: int, K: int, V: int) -> None:
    call = make_call(T=T, K=K, V=V, dtype=torch.float64, g=0.4)
    start = torch.randn(2, 2, K, V, dtype=torch.float64, requires_grad=True)
    inputs = (*call.tensors, start)
    got = kda(*call.tensors, initial_state=start, output_final_state=True, chunk=chunk, path=path)
    want = kda(*call.tensors, initial_state=start, output_final_state=True, path="reference")
    pairs = zip((*got, *gradients(got, inputs)), (*want, *gradients(want, inputs)), strict=True)
    for x, y in pairs:
        assert x is not None
        assert y is not None
        assert relative_l2(x, y) <= 1e-13


@pytest.mark.parametrize("path", CHUNKED)
@pytest.mark.parametrize("chunk", [16, 32])
def test_gdn2_is_covered_with_a_gate_a_channel(path: str, chunk: int) -> None:
    call = make_call(T=40, dtype=torch.float64, g=0.4)
    b = torch.rand(call.k.shape, dtype=torch.float64, requires_grad=True)
    w = torch.rand(call.v.shape, dtype=torch.float64, requires_grad=True)
    inputs = (*call.tensors[:4], b, w)
    got = gdn2(*inputs, output_final_state=True, chunk=chunk, path=path)
    want = gdn2(*inputs, output_final_state=True, path="reference")
    for x, y in zip((*got, *gradients(got, inputs)), (*want, *gradients(want, inputs)), strict=True):
        assert x is not None
        assert y is not None
        assert relative_l2(x, y) <= 1e-13


def test_gdn2_with_equal_gates_is_kda() -> None:
    call = make_call(dtype=torch.float64)
    b = call.beta.unsqueeze(-1).expand_as(call.k)
    w = call.beta.unsqueeze(-1).expand_as(call.v)
    got, _ = gdn2(*call.tensors[:4], b, w, path="tensor")
    assert relative_l2(got, kda(*call.tensors, path="tensor")[0]) <= 1e-15


def against_float64(call: Call, path: str) -> tuple[float, float]:
    """Largest relative errors of forward and gradients, against float64 on the very same numbers."""
    exact = call.to(torch.float64)
    got = kda(*call.tensors, output_final_state=True, path=path)
    want = kda(*exact.tensors, output_final_state=True, path="reference")

    def worst(xs: tuple[Tensor | None, ...], ys: tuple[Tensor | None, ...]) -> float:
        return max(relative_l2(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None)

    return worst(got, want), worst(gradients(got, call.tensors), gradients(want, exact.tensors))


@pytest.mark.parametrize("path", ["reference", *CHUNKED])
def test_float32_at_the_operating_point(path: str) -> None:
    forward, backward = against_float64(make_call(B=1, T=200, H=2, K=64, V=64), path)
    assert forward <= 1e-6
    assert backward <= 1e-5


@pytest.mark.parametrize("path", ["reference", *CHUNKED])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 1e-2), (torch.float16, 2e-3)])
def test_half_inputs_lose_no_more_than_their_own_rounding(path: str, dtype: torch.dtype, bound: float) -> None:
    forward, backward = against_float64(make_call(T=40, dtype=dtype), path)
    assert forward <= bound
    assert backward <= bound


def test_results_have_the_dtypes_promised() -> None:
    for dtype, state_dtype in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        o, state = kda(*make_call(dtype=dtype).tensors, output_final_state=True, path="tensor")
        assert (o.dtype, state is not None and state.dtype) == (dtype, state_dtype)
        assert o.is_contiguous()


def test_two_halves_joined_by_the_state_are_the_whole() -> None:
    call = make_call(T=48, dtype=torch.float64)
    whole, end = kda(*call.tensors, output_final_state=True, path="tensor")
    first, middle = kda(*(x[:, :20] for x in call.tensors), output_final_state=True, path="tensor")
    second, last = kda(*(x[:, 20:] for x in call.tensors), initial_state=middle, output_final_state=True, path="tensor")
    assert relative_l2(torch.cat([first, second], dim=1), whole) <= 1e-13
    assert end is not None
    assert last is not None
    assert relative_l2(last, end) <= 1e-13
