"""Numeric range and causality: finite for every decay allowed, and no output that depends on a later token."""

from __future__ import annotations

import pytest
import torch
from kda_calls import Call, gradients, make_call, relative_l2
from torch import Tensor

from kdaprof.kda import kda

CHUNKED = ("tensor", "tensor-rows")


def with_decay(kind: str, dtype: torch.dtype) -> Call:
    call = make_call(B=1, T=70, dtype=dtype)
    g = torch.zeros_like(call.g)
    if kind == "all -5":
        g.fill_(-5.0)
    elif kind == "uniform":
        g = -5 * torch.rand(g.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    elif kind == "channels":
        g[..., ::2] = -5.0
    elif kind == "tokens":
        g[:, ::3] = -5.0
    elif kind == "step":
        g[:, 24:] = -5.0
    else:
        assert kind == "zero"
    return call.with_(g=g.requires_grad_())


KINDS = ("zero", "all -5", "uniform", "channels", "tokens", "step")
CASES = [
    *((16, kind, torch.float32) for kind in KINDS),
    *((64, kind, torch.float32) for kind in KINDS),
    (32, "uniform", torch.float32),
    *((16, kind, dtype) for kind in ("all -5", "uniform") for dtype in (torch.bfloat16, torch.float16)),
]


@pytest.mark.parametrize("path", CHUNKED)
@pytest.mark.parametrize(("chunk", "kind", "dtype"), CASES)
def test_outputs_and_gradients_are_finite_and_right(path: str, chunk: int, kind: str, dtype: torch.dtype) -> None:
    call = with_decay(kind, dtype)
    got = kda(*call.tensors, output_final_state=True, chunk=chunk, path=path)
    exact = call.to(torch.float64)
    want = kda(*exact.tensors, output_final_state=True, path="reference")
    # exp(75) is off by 75 eps, and where every pair is decayed to nothing the gradient of g is made of such pairs.
    bound = 1e-4 if dtype is torch.float32 else 1e-2
    results = (*got, *gradients(got, call.tensors))
    for x, y in zip(results, (*want, *gradients(want, exact.tensors)), strict=True):
        assert x is not None
        assert y is not None
        assert torch.isfinite(x).all()
        assert relative_l2(x, y) <= bound


def test_beyond_the_range_the_chunk_form_fails_as_documented_and_the_recurrence_holds() -> None:
    call = make_call(T=32)
    call = call.with_(g=torch.full_like(call.g, -20.0))
    assert not torch.isfinite(kda(*call.tensors, path="tensor")[0]).all()
    assert torch.isfinite(kda(*call.tensors, path="reference")[0]).all()


@pytest.mark.parametrize("path", ["reference", *CHUNKED])
@pytest.mark.parametrize("chunk", [16, 32, 64])
@pytest.mark.parametrize("name", ["q", "k", "v", "g", "beta"])
def test_no_token_is_seen_before_its_time(path: str, chunk: int, name: str) -> None:
    call = make_call(B=1, T=70, V=16, g=1.0, requires_grad=False)
    before, _ = kda(*call.tensors, chunk=chunk, path=path)
    for t in (1, 9, 16, 37, 63):
        changed = getattr(call, name).clone()
        changed[:, t:] *= 3.7
        after, _ = kda(*call.with_(**{name: changed}).tensors, chunk=chunk, path=path)
        assert torch.equal(after[:, :t], before[:, :t]), f"output before token {t} moved"
        assert not torch.equal(after[:, t:], before[:, t:])


def test_repeated_calls_are_bit_identical() -> None:
    call = make_call(T=70)

    def run() -> tuple[Tensor, ...]:
        o, _ = kda(*call.tensors, path="tensor")
        return (o, *gradients((o, None), call.tensors))

    assert all(torch.equal(x, y) for x, y in zip(run(), run(), strict=True))
