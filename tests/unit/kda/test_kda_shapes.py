"""Faults of shape, dtype and device: one clear line, raised before anything runs, on every path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from kda_calls import make_call

from kdaprof.errors import Exit, UsageError
from kdaprof.kda import counters, gdn2, kda
from kdaprof.kda.shapes import DeviceError, DtypeError, OpShape, ShapeError

FAULTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"q": torch.zeros(2, 40, 16)}, ShapeError, "q has shape (2, 40, 16); expected [B, T, H, K]"),
    ({"q": torch.zeros(2, 0, 2, 16)}, ShapeError, "T, H and K at least 1"),
    ({"k": torch.zeros(2, 40, 2, 8)}, ShapeError, "k has shape (2, 40, 2, 8); expected [B, T, H, K]"),
    ({"v": torch.zeros(2, 39, 2, 32)}, ShapeError, "v has shape (2, 39, 2, 32); expected [B, T, H, V] = (2, 40, 2, V)"),
    ({"v": torch.zeros(2, 40, 2, 0)}, ShapeError, "expected [B, T, H, V]"),
    ({"g": torch.zeros(2, 40, 2)}, ShapeError, "g[..., None].expand"),
    ({"g": torch.zeros(2, 40, 2, 1)}, ShapeError, "(2, 40, 2, 16)"),
    ({"beta": torch.zeros(2, 40, 2, 1)}, ShapeError, "expected [B, T, H], one gate a head = (2, 40, 2)"),
    ({"beta": None}, DtypeError, "beta must be a torch.Tensor, got NoneType"),
    ({"q": np.zeros((2, 40, 2, 16))}, DtypeError, "q must be a torch.Tensor, got ndarray"),
    ({"v": torch.zeros(2, 40, 2, 32, dtype=torch.int64)}, DtypeError, "v is int64; expected float32"),
    ({"g": torch.zeros(2, 40, 2, 16, dtype=torch.float64)}, DtypeError, "float64 does not mix"),
    ({"q": torch.zeros(2, 40, 2, 16).to_sparse()}, DtypeError, "q has layout sparse_coo; expected a dense tensor"),
    ({"beta": torch.zeros(2, 40, 2).to_sparse()}, DtypeError, "beta.to_dense()"),
    ({"v": torch.zeros(2, 40, 2, 32).to_mkldnn()}, DtypeError, "v has layout _mkldnn"),
    ({"k": torch.zeros(2, 40, 2, 16, device="meta")}, DeviceError, "k is on meta and q on cpu"),
]


@pytest.mark.parametrize("path", ["auto", "tensor", "reference", "fused"])
@pytest.mark.parametrize(("change", "error", "text"), FAULTS)
def test_each_fault_is_one_line(change: dict[str, Any], error: type[Exception], text: str, path: str) -> None:
    call = make_call().with_(**change)
    with pytest.raises(error) as raised:
        kda(*call.tensors, path=path)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, UsageError)
    assert raised.value.exit_code is Exit.USAGE
    assert str(counters()) == "kda fused=0 tensor=0"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("name", ["q", "g", "beta"])
def test_a_nested_tensor_is_one_line(name: str, layout: torch.layout) -> None:
    call = make_call()
    dense = dict(zip(("q", "k", "v", "g", "beta"), call.tensors, strict=True))[name]
    nested = torch.nested.nested_tensor([dense[0], dense[1, :8]], layout=layout)
    with pytest.raises(DtypeError, match=rf"^{name} is a nested tensor; expected a dense one: pad it.*$"):
        kda(*call.with_(**{name: nested}).tensors, path="tensor")


def test_a_sparse_tensor_is_refused_after_a_dense_one_of_the_same_shape() -> None:
    call = make_call()
    kda(*call.tensors, path="tensor")
    with pytest.raises(DtypeError, match="g has layout sparse_coo"):
        kda(*call.with_(g=torch.zeros_like(call.tensors[3]).to_sparse()).tensors, path="tensor")


def test_torch_users_catch_them_as_what_they_are() -> None:
    assert issubclass(ShapeError, ValueError)
    assert issubclass(DtypeError, TypeError)
    assert issubclass(DeviceError, ValueError)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (torch.zeros(2, 2, 32, 16), ShapeError),
        (torch.zeros(2, 2, 16, 32, dtype=torch.float64), DtypeError),
        (torch.zeros(2, 2, 16, 32, device="meta"), DeviceError),
    ],
)
def test_the_initial_state_is_checked(state: torch.Tensor, error: type[Exception]) -> None:
    with pytest.raises(error, match="initial_state"):
        kda(*make_call().tensors, initial_state=state, path="tensor")


def test_a_good_call_does_not_excuse_a_bad_one_that_follows() -> None:
    call = make_call()
    kda(*call.tensors, path="tensor")
    with pytest.raises(ShapeError):
        kda(*call.with_(beta=call.beta[..., :1]).tensors, path="tensor")
    with pytest.raises(ShapeError):
        kda(*call.tensors, initial_state=torch.zeros(1), path="tensor")


@pytest.mark.parametrize("chunk", [0, -16, 1.5, True, "16"])
def test_chunk_must_be_a_whole_number(chunk: Any) -> None:
    with pytest.raises(UsageError, match="chunk"):
        kda(*make_call().tensors, chunk=chunk, path="tensor")


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), "1", torch.ones(())])
def test_scale_must_be_a_finite_number(scale: Any) -> None:
    with pytest.raises(UsageError, match="scale"):
        kda(*make_call().tensors, scale=scale, path="tensor")


@pytest.mark.parametrize("path", ["fussed", "", None, ["fused"]])
def test_unknown_paths_are_usage_errors(path: Any) -> None:
    with pytest.raises(UsageError, match="path"):
        kda(*make_call().tensors, path=path)


def test_gdn2_checks_its_own_gates() -> None:
    call = make_call()
    b, w = torch.zeros_like(call.k), torch.zeros_like(call.v)
    with pytest.raises(ShapeError, match="b has shape"):
        gdn2(*call.tensors[:4], call.beta, w, path="tensor")
    with pytest.raises(ShapeError, match="w has shape"):
        gdn2(*call.tensors[:4], b, b, path="tensor")


def test_half_and_float32_may_be_mixed_as_autocast_does() -> None:
    call = make_call()
    mixed = call.with_(q=call.q.bfloat16(), v=call.v.bfloat16())
    o, state = kda(*mixed.tensors, output_final_state=True, path="tensor")
    assert o.dtype is torch.bfloat16
    assert state is not None
    assert state.dtype is torch.float32


def test_chunks_of_a_shape_count_the_short_one() -> None:
    assert OpShape(1, 33, 1, 16, 16).chunks(16) == 3
