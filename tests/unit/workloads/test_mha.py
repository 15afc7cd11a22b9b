"""Attention by backend: right results, the backend that was asked for, and torch's own words where there is none."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch.backends import cuda as switches
from torch.nn.attention import SDPBackend

from kdaprof.errors import UnavailableError
from kdaprof.probe.check import compare
from kdaprof.probe.library import observe_choice
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.workloads.library import LIBRARIES
from kdaprof.workloads.mha import backends, facts
from kdaprof.workloads.op import CaseSpec, OpCase

MHA = LIBRARIES["mha"]


def key(
    path: str = "math", phase: str = "fwd", dtype: str = "float32", shape: tuple[int, ...] = (2, 2, 24, 16)
) -> CellKey:
    return CellKey("mha", path, "plain", "eager", phase, make_shape("mha", shape), dtype)


def case(path: str = "math", phase: str = "fwd", dtype: str = "float32") -> OpCase:
    return OpCase(CaseSpec(key=key(path, phase, dtype), device="cpu", seed=0, input_sets=1))


@pytest.fixture(autouse=True)
def switches_kept() -> Iterator[None]:
    with MHA.settings():
        yield


@pytest.mark.parametrize("dtype", facts.DTYPES)
@pytest.mark.parametrize("path", ["flash", "math", "composite"])
@pytest.mark.parametrize("phase", ["fwd", "fwdbwd"])
def test_every_path_of_the_cpu_is_right(path: str, dtype: str, phase: str) -> None:
    made = case(path, phase, dtype)
    made.prepare(0)
    made.run()
    want = MHA.reference(made.current, backward=phase != "fwd")
    assert set(want) == ({"o"} if phase == "fwd" else {"o", "dq", "dk", "dv"})
    check = compare(made.outputs(), want, against=MHA.AGAINST, tolerance=MHA.tolerance(key(path, phase, dtype)))
    assert check.passed, check


def test_the_reference_is_causal_and_cut_along_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from kdaprof.workloads.mha import call

    given = MHA.inputs(key(dtype="float64"), device="cpu", seed=1, index=0, grad=True)
    want = torch.nn.functional.scaled_dot_product_attention(*(t.double() for t in given.tensors()), is_causal=True)
    whole = MHA.reference(given, backward=True)
    assert torch.allclose(whole["o"], want, atol=1e-12)
    monkeypatch.setattr(call, "_SLICE_BYTES", 1)
    parts = MHA.reference(given, backward=True)
    assert all(torch.allclose(parts[name], whole[name], atol=1e-13) for name in whole)


@pytest.mark.parametrize("path", ["cudnn", "mem-efficient"])
def test_a_backend_without_a_kernel_is_unavailable_in_torchs_words(path: str) -> None:
    """Case 43."""
    made = case(path)
    made.prepare(0)
    with pytest.raises(UnavailableError, match=r"^No viable backend for scaled_dot_product_attention"):
        made.run()


def test_reasons_come_from_the_warnings_that_torch_gives() -> None:
    def call() -> None:
        warnings.warn("Flash attention kernel not used because: (Triggered internally at a.cpp:1.)", stacklevel=1)
        warnings.warn("Expected query to be Half, but got float. (Triggered internally at b.cpp:2.)", stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.")

    told = backends.why_not(SDPBackend.FLASH_ATTENTION, call)
    assert told == "Expected query to be Half, but got float."


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("illegal memory access")])
def test_a_fault_is_not_taken_for_a_refusal(error: RuntimeError) -> None:
    def call() -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        backends.why_not(SDPBackend.FLASH_ATTENTION, call)


def test_paths_in_turn_each_take_their_own_backend() -> None:
    flash, math = case("flash"), case("math")
    for made in (flash, math):
        made.run()
    for made, path in ((math, "math"), (flash, "flash"), (math, "math")):
        seen = observe_choice(made.spec.key, made.run)
        assert seen is not None
        assert (seen.chosen, seen.forward, seen.backward) == (path, {path: 1}, {})


def test_the_backward_is_counted_where_it_ran() -> None:
    made = case("flash", "fwdbwd")
    made.run()
    seen = observe_choice(made.spec.key, made.run)
    assert seen is not None
    assert seen.backward == {"flash": 1}


def test_a_mislabelled_call_names_the_backend_that_ran() -> None:
    made = case("math")
    made.run()
    seen = observe_choice(key("flash"), made.run)
    assert seen is not None
    assert seen.chosen == "math"


def test_the_switches_are_put_back_whatever_happens() -> None:
    def fall_over() -> None:
        with MHA.settings():
            backends.choose("flash")
            assert not switches.math_sdp_enabled()
            raise ZeroDivisionError

    before = (switches.flash_sdp_enabled(), switches.math_sdp_enabled())
    with pytest.raises(ZeroDivisionError):
        fall_over()
    assert (switches.flash_sdp_enabled(), switches.math_sdp_enabled()) == before


def test_sets_are_the_same_anywhere_and_differ_from_each_other() -> None:
    first, again, second = (MHA.inputs(key(), device="cpu", seed=3, index=i, grad=False) for i in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first.tensors(), again.tensors(), strict=True))
    assert not torch.equal(first.tensors()[0], second.tensors()[0])
    assert first.do.numel() == 0


def test_work_of_the_field_reports_shape() -> None:
    """4·B·H·T²·D is 8.05 GFLOP; the mask leaves T (T + 1) / 2 of T² pairs."""
    work = MHA.work(key("flash", shape=facts.FIELD_SHAPE, dtype="bfloat16"))
    assert work.flops == 4 * 10 * 12 * (512 * 513 // 2) * 64
    assert work.bytes_compulsory == 4 * 10 * 12 * 512 * 64 * 2
    assert work.rate == "matmul_bfloat16"
    backward = MHA.work(key("flash", "bwd", shape=facts.FIELD_SHAPE, dtype="bfloat16"))
    assert backward.flops * 2 == work.flops * 5
    assert MHA.work(key("math")).rate == "matmul_float32"
    assert MHA.work(key("mem-efficient")).rate == "matmul_tf32x3"


def test_the_reason_is_the_calls_own_not_that_the_others_were_switched_off() -> None:
    def refused() -> None:
        warnings.warn(
            "Flash attention kernel not used because: (Triggered internally at sdp_utils.cpp:1)", stacklevel=1
        )
        warnings.warn("Memory Efficient attention has been runtime disabled. (Triggered internally at x)", stacklevel=1)
        warnings.warn("Expected query to be of dtype: {Half, BFloat16}. (Triggered internally at x)", stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.")

    told = backends.why_not(backends.BACKENDS["math"], refused)
    assert told == "Expected query to be of dtype: {Half, BFloat16}."
