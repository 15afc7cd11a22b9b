"""`validate` reads values: one scene that trips each rule alone, and a near miss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kda_calls import Call, make_call
from torch.nn import functional as F

from kdaprof.errors import UsageError
from kdaprof.kda import validate
from kdaprof.kda.shapes import ShapeError
from kdaprof.kda.values import ValueRangeError


def with_one(call: Call, name: str, value: float) -> Call:
    x = getattr(call, name).detach().clone()
    x[0, 3, 1] = value
    return call.with_(**{name: x})


def test_the_operating_point_is_clean() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        report = validate(*make_call(dtype=dtype).tensors)
        assert report.entries == ()
        assert report.ok


@pytest.mark.parametrize("name", ["q", "k", "v", "g", "beta"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite(name: str, value: float) -> None:
    call = with_one(make_call(), name, value)
    with pytest.raises(ValueRangeError, match=f"{name} has .* not finite"):
        validate(*call.tensors)
    report = validate(*call.tensors, strict=False)
    assert [e.tensor for e in report.errors] == [name]


def test_a_positive_decay() -> None:
    with pytest.raises(ValueRangeError, match="g reaches"):
        validate(*with_one(make_call(), "g", 1e-6).tensors)
    assert validate(*with_one(make_call(), "g", 0.0).tensors).ok


@pytest.mark.parametrize(("g", "ok"), [(-5.0, True), (-5.1, False)])
def test_the_range_of_sixteen_tokens(g: float, ok: bool) -> None:
    call = make_call(T=48)
    call = call.with_(g=torch.full_like(call.g, g))
    for path, holds in (("tensor", ok), ("compiled", ok), ("auto", ok), ("fused", True), ("reference", True)):
        assert validate(*call.tensors, path=path, strict=False).ok is holds
    for chunk in (16, 32, 64):
        assert validate(*call.tensors, chunk=chunk, path="tensor", strict=False).ok is ok


def test_the_range_is_that_of_a_block_and_not_of_the_sequence() -> None:
    call = make_call(T=48)
    g = torch.zeros_like(call.g)
    g[:, 15], g[:, 16] = -60.0, -60.0  # neighbours, in two blocks
    assert validate(*call.with_(g=g).tensors, path="tensor").ok
    g[:, 17] = -30.0
    with pytest.raises(ValueRangeError, match="falls by 90"):
        validate(*call.with_(g=g).tensors, path="tensor")
    assert validate(*call.with_(g=g).tensors, chunk=17, path="tensor").ok  # chunks of 17 part the two


def test_keys_off_unit_length_are_a_warning() -> None:
    call = make_call()
    report = validate(*call.with_(k=3 * call.k).tensors)
    assert [(e.level, e.tensor) for e in report.entries] == [("warning", "k")]
    assert report.ok
    assert validate(*call.with_(k=1.005 * F.normalize(call.k, dim=-1)).tensors).entries == ()


@pytest.mark.parametrize(("value", "found"), [(2.1, 1), (-0.1, 1), (2.0, 0), (0.0, 0)])
def test_beta_outside_its_range_is_a_warning(value: float, found: int) -> None:
    assert len(validate(*with_one(make_call(), "beta", value).tensors).entries) == found


def test_shapes_come_first_and_an_empty_batch_is_clean() -> None:
    call = make_call()
    wrong: Any = call.with_(g=call.g[..., 0])
    with pytest.raises(ShapeError):
        validate(*wrong.tensors)
    assert validate(*make_call(B=0).tensors).entries == ()


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"chunk": 0}, "chunk must be"), ({"chunk": 1.5}, "chunk must be"), ({"path": "fussed"}, "'fussed' is unknown")],
)
def test_settings_without_meaning_are_refused_as_the_op_refuses_them(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as told:
        validate(*make_call().tensors, **settings)
    assert len(str(told.value).splitlines()) == 1
