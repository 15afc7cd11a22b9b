"""Right before fast: what passes the comparison, and above all what never does."""

from __future__ import annotations

import math

import pytest
import torch
from probe_parts import TINY
from torch import Tensor

from kdaprof.errors import Exit
from kdaprof.kda import kda
from kdaprof.probe import check
from kdaprof.probe.check import TOLERANCE, OutputError, compare, reference
from kdaprof.workloads.inputs import INPUT_NAMES, InputSpec, OpInputs, make_inputs

AXES = ("B", "T", "H", "K", "V")


def inputs(shape: tuple[int, ...] = TINY, *, grad: bool = True, dtype: str = "float32") -> OpInputs:
    spec = InputSpec(shape=tuple(zip(AXES, shape, strict=True)), dtype=dtype, device="cpu", seed=0, requires_grad=grad)
    return make_inputs(spec, 0)


def compared(got: Tensor, want: Tensor, tolerance: float = 1e-5) -> check.Check:
    return compare({"o": got}, {"o": want}, against="test", tolerance=tolerance)


def test_equal_tensors_pass_with_no_error() -> None:
    x = torch.randn(3, 4)
    result = compared(x, x.clone())
    assert result.passed
    assert (result.tensors[0].l2, result.tensors[0].max_abs, result.tensors[0].finite) == (0.0, 0.0, True)
    assert (result.against, result.tolerance_l2) == ("test", 1e-5)


def test_errors_are_relative_l2_and_largest_absolute() -> None:
    want = torch.tensor([3.0, 4.0, 0.0])
    row = compared(want + torch.tensor([0.0, 0.0, 0.5]), want).tensors[0]
    assert row.l2 == pytest.approx(0.1)
    assert row.max_abs == pytest.approx(0.5)


def test_the_tolerance_is_the_border() -> None:
    want = torch.ones(4, dtype=torch.float64)
    assert compared(want * (1 + 1e-5), want, 1.0001e-5).passed
    assert not compared(want * (1 + 1e-5), want, 0.9999e-5).passed


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["got", "want", "both"])
def test_what_is_not_finite_never_passes(bad: float, where: str) -> None:
    got, want = torch.ones(4), torch.ones(4)
    if where != "want":
        got[1] = bad
    if where != "got":
        want[1] = bad
    result = compared(got, want, tolerance=math.inf)
    assert not result.passed
    assert result.tensors[0].finite is (where == "want")
    assert result.tensors[0].l2 is None


def test_a_reference_of_zeros_compares_absolutely() -> None:
    zero = torch.zeros(4)
    assert compared(zero.clone(), zero).passed
    row = compared(zero + 0.5, zero)
    assert not row.passed
    assert row.tensors[0].l2 == pytest.approx(1.0)


def test_one_bad_tensor_among_good_ones_fails() -> None:
    good = torch.ones(3)
    result = compare({"o": good, "dq": good * 1.1}, {"o": good, "dq": good}, against="x", tolerance=1e-3)
    assert [(t.name, t.l2 == 0) for t in result.tensors] == [("o", True), ("dq", False)]
    assert not result.passed


def test_a_tensor_that_is_not_returned_is_an_error_not_a_pass() -> None:
    one = torch.ones(2, 3)
    with pytest.raises(OutputError, match=r"dq was not returned; expected \(2, 3\)") as caught:
        compare({"o": one}, {"o": one, "dq": one}, against="x", tolerance=1)
    assert caught.value.exit_code is Exit.ERROR


def test_another_shape_is_an_error_even_where_it_broadcasts() -> None:
    with pytest.raises(OutputError, match=r"o has shape \(1, 3\), expected \(2, 3\)"):
        compared(torch.ones(1, 3), torch.ones(2, 3))


def test_nothing_compared_does_not_pass() -> None:
    assert not compare({"o": torch.ones(1)}, {}, against="x", tolerance=1).passed


def test_an_empty_tensor_divides_by_nothing() -> None:
    assert compared(torch.ones(0, 4), torch.ones(0, 4)).passed


def test_the_reference_is_the_recurrence_in_float64() -> None:
    x = inputs()
    made = reference(x, backward=True)
    assert list(made) == ["o", *(f"d{name}" for name in INPUT_NAMES)]
    args = [t.detach().double().requires_grad_() for t in x.tensors()]
    o, _ = kda(*args, path="reference")
    grads = torch.autograd.grad(o, args, x.do.double())
    assert all(value.dtype is torch.float64 for value in made.values())
    assert torch.equal(made["o"], o)
    assert all(torch.equal(made[f"d{n}"], g) for n, g in zip(INPUT_NAMES, grads, strict=True))


def test_without_a_backward_only_the_output() -> None:
    made = reference(inputs(grad=False), backward=False)
    assert list(made) == ["o"]
    assert not made["o"].requires_grad


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("limit", [1, 3 * 12 * 2 * 16 * 16 * 8])
def test_slices_of_the_batch_make_the_whole(monkeypatch: pytest.MonkeyPatch, limit: int, backward: bool) -> None:
    """The last slice is a short one, and a limit below one item still takes one item at a time."""
    x = inputs((5, 12, 2, 16, 16), grad=backward)
    whole = reference(x, backward=backward)
    calls: list[int] = []
    real = check._reference_slice

    def counted(taken: OpInputs, first: int, last: int, grad: bool) -> dict[str, Tensor]:
        calls.append(first)
        return real(taken, first, last, grad)

    monkeypatch.setattr(check, "_reference_slice", counted)
    monkeypatch.setattr(check, "_SLICE_BYTES", limit)
    cut = reference(x, backward=backward)
    assert len(calls) > 1
    for name, value in whole.items():
        torch.testing.assert_close(cut[name], value, rtol=1e-13, atol=1e-15)


def test_inputs_keep_no_gradient_of_the_reference() -> None:
    x = inputs()
    reference(x, backward=True)
    assert all(t.grad is None for t in x.tensors())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_the_tensor_path_keeps_its_tolerance_and_a_wrong_one_does_not(dtype: str) -> None:
    x = inputs(grad=False, dtype=dtype)
    want = reference(x, backward=False)
    with torch.no_grad():
        o, _ = kda(*x.tensors(), path="tensor")
        wrong, _ = kda(x.q, x.k, x.v, 1.5 * x.g, x.beta, path="tensor")
    assert compare({"o": o}, want, against="x", tolerance=TOLERANCE[dtype]).passed
    assert not compare({"o": wrong}, want, against="x", tolerance=TOLERANCE[dtype]).passed


def test_plain_tf32_arithmetic_would_not_pass_for_float32() -> None:
    x = inputs(grad=False)
    want = reference(x, backward=False)
    rounded = [(t.view(torch.int32) & ~0x1FFF).view(torch.float32) for t in x.tensors()]  # ten bits of mantissa
    o, _ = kda(*rounded, path="reference")
    assert not compare({"o": o}, want, against="x", tolerance=TOLERANCE["float32"]).passed
