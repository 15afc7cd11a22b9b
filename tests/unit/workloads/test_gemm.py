"""A matrix product by precision: right results, torch's settings as they were, and reasons where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from kdaprof.errors import UnavailableError
from kdaprof.probe.check import compare
from kdaprof.probe.library import observe_choice
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.workloads.gemm import call, facts
from kdaprof.workloads.library import LIBRARIES
from kdaprof.workloads.op import CaseSpec, OpCase

GEMM = LIBRARIES["gemm"]


def key(path: str = "fp32", shape: tuple[int, ...] = (48, 64, 32)) -> CellKey:
    return CellKey("gemm", path, "plain", "eager", "fwd", make_shape("gemm", shape), facts.DTYPE_OF[path])


def case(path: str = "fp32", shape: tuple[int, ...] = (48, 64, 32)) -> OpCase:
    return OpCase(CaseSpec(key=key(path, shape), device="cpu", seed=0, input_sets=1))


@pytest.fixture(autouse=True)
def precision_kept() -> Iterator[None]:
    with GEMM.settings():
        yield


@pytest.mark.parametrize("path", ["fp32", "fp16", "bf16", "fp8"])
def test_every_precision_of_the_cpu_is_right(path: str) -> None:
    made = case(path)
    made.prepare(0)
    made.run()
    check = compare(
        made.outputs(),
        GEMM.reference(made.current, backward=False),
        against=GEMM.AGAINST,
        tolerance=GEMM.tolerance(key(path)),
    )
    assert check.passed, check
    assert made.outputs()["o"].dtype == (torch.bfloat16 if path == "fp8" else getattr(torch, facts.DTYPE_OF[path]))


def test_less_precision_than_was_asked_for_does_not_pass() -> None:
    """What plain tf32 loses, a float32 cell must not."""
    made = case("fp32")
    made.run()
    rounded = {"o": made.outputs()["o"].bfloat16().float()}
    want = GEMM.reference(made.current, backward=False)
    assert not compare(rounded, want, against=GEMM.AGAINST, tolerance=GEMM.tolerance(key("fp32"))).passed


def test_tf32_without_tensor_cores_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match=r"tensor cores, from compute capability 8\.0 on"):
        case("tf32")


def test_fp8_names_the_sizes_that_it_cannot_take() -> None:
    with pytest.raises(UnavailableError, match="K and N in multiples of 16, not K 63 and N 31"):
        case("fp8", (48, 63, 31))


def test_fp8_where_torch_refuses_keeps_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0\nat …")

    made = case("fp8")
    monkeypatch.setattr(torch, "_scaled_mm", refuse)
    with pytest.raises(UnavailableError, match=r"^torch\._scaled_mm is only supported .* >= 9\.0$"):
        made.run()


def test_another_fault_of_fp8_stays_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("CUBLAS_STATUS_INTERNAL_ERROR")

    made = case("fp8")
    monkeypatch.setattr(torch, "_scaled_mm", fail)
    with pytest.raises(RuntimeError, match="INTERNAL"):
        made.run()


@pytest.mark.parametrize("before", ["highest", "high"])
def test_the_precision_is_put_back_whatever_happens(before: str) -> None:
    def fall_over() -> None:
        with GEMM.settings():
            case("fp32").run()
            assert torch.get_float32_matmul_precision() == "highest"
            raise ZeroDivisionError

    torch.set_float32_matmul_precision(before)
    with pytest.raises(ZeroDivisionError):
        fall_over()
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("path", ["fp32", "fp16", "bf16", "fp8"])
def test_the_setting_behind_a_call_names_its_precision(path: str) -> None:
    made = case(path)
    seen = observe_choice(key(path), made.run)
    assert seen is not None
    assert (seen.chosen, seen.forward, seen.backward) == (path, {path: 1}, {})


def test_tf32_sets_and_reads_torchs_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "_has_tf32", lambda device: True)
    product = GEMM.op(key("tf32"), "cpu")
    product(torch.ones(2, 2), torch.ones(2, 2))
    assert GEMM.chosen(key("tf32"), {"aten::mm": 1}) == "tf32"
    assert GEMM.chosen(key("fp32"), {"aten::mm": 1}) == "tf32"  # a label does not make it so


def test_no_product_no_precision() -> None:
    assert observe_choice(key(), lambda: None) is None


def test_work_of_the_field_reports_product() -> None:
    work = GEMM.work(key("fp32", facts.FIELD_SHAPE))
    assert work.flops == 171_798_691_840
    assert work.bytes_compulsory == 4 * (5120 * 2048 + 2048 * 8192 + 5120 * 8192)
    assert GEMM.work(key("fp8", facts.FIELD_SHAPE)).bytes_compulsory == 5120 * 2048 + 2048 * 8192 + 2 * 5120 * 8192
