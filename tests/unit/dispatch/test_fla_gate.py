"""FLA's dispatcher asked without a call: each keyword that its backend refuses for, by the reason that it gives."""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from kdaprof.instruments.device import CpuDevice
from kdaprof.probe.dispatch.peer_gate import CONTEXTS, RAW, gate_rows
from kdaprof.runs.dispatch import DispatchRow


def chunk_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **_: object) -> None:
    raise AssertionError("asked, not called")


def chunk_gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **_: object) -> None:
    raise AssertionError("asked, not called")


chunk_kda.__module__ = "fla.ops.kda.chunk"
chunk_gated_delta_rule.__module__ = "fla.ops.gated_delta_rule.chunk"


class Backend:
    """FLA's `BaseBackend`, as far as it is asked."""

    backend_type: ClassVar[str] = "flash_kda"
    package_name: ClassVar[str | None] = "torch"
    env_var: ClassVar[str] = "FLA_FLASH_KDA"

    def __init__(self, *, available: bool = True, enabled: bool = True) -> None:
        self.available, self.enabled = available, enabled

    def is_available(self) -> bool:
        return self.available

    def is_enabled(self) -> bool:
        return self.enabled

    def get_implementation(self, name: str) -> Any:
        return chunk_kda if name == "chunk_kda" else None

    def verify(self, name: str, q: Tensor, *rest: Tensor, **given: Any) -> tuple[bool, str | None]:
        if torch.is_grad_enabled():
            return False, "FlashKDA only supports inference mode"
        if q.dtype != torch.bfloat16:
            return False, f"FlashKDA requires bfloat16, got {q.dtype}"
        if q.shape[-1] != 128:
            return False, f"FlashKDA requires K=128, got {q.shape[-1]}"
        for keyword in ("use_gate_in_kernel", "use_qk_l2norm_in_kernel", "use_beta_sigmoid_in_kernel", "safe_gate"):
            if not given.get(keyword):
                return False, f"FlashKDA requires {keyword}=True"
        if given.get("A_log") is None or given.get("dt_bias") is None:
            return False, "FlashKDA requires A_log and dt_bias tensors"
        return True, None


class Registry:
    def __init__(self, *backends: Backend) -> None:
        self._backends = backends

    def _get_sorted_backends(self) -> list[Backend]:
        return list(self._backends)


def install(monkeypatch: pytest.MonkeyPatch, *backends: Backend) -> None:
    """An `fla` whose `chunk_kda` is dispatched to these."""
    modules = {name: types.ModuleType(name) for name in ("fla", "fla.backends", "fla.ops", "fla.ops.kda")}
    modules["fla"].__spec__ = ModuleSpec("fla", None, is_package=True)
    modules["fla.ops.gated_delta_rule"] = types.ModuleType("fla.ops.gated_delta_rule")
    modules["fla.ops.kda"].chunk_kda = chunk_kda  # type: ignore[attr-defined]
    modules["fla.ops.gated_delta_rule"].chunk_gated_delta_rule = chunk_gated_delta_rule  # type: ignore[attr-defined]
    modules["fla.backends"]._function_registries = {chunk_kda: Registry(*backends)}  # type: ignore[attr-defined]
    modules["fla.backends"]._operation_registries = {"gated_delta_rule": Registry(Backend())}  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv("FLA_DISABLE_BACKEND_DISPATCH", raising=False)


def asked(context: str, dtype: str = "bfloat16", *, workload: str = "kda", dim: int = 128) -> DispatchRow:
    rows = gate_rows(CpuDevice(), dtypes=(dtype,), contexts=(context,))
    return next(row for row in rows if row.op == f"fla-gate {workload}" and row.shape["K"] == dim)


def why(row: DispatchRow, path: str = "flash_kda") -> str:
    return next(refusal.reason for refusal in row.refused if refusal.path == path)


def test_a_call_that_its_backend_takes_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Backend())
    row = asked(RAW)
    assert (row.status, row.chosen) == ("ok", "flash_kda")
    assert why(row, "fla") == "flash_kda takes it"


@pytest.mark.parametrize(
    "keyword", ["use_gate_in_kernel", "use_qk_l2norm_in_kernel", "use_beta_sigmoid_in_kernel", "safe_gate"]
)
def test_one_keyword_left_out_is_named(keyword: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Backend())
    row = asked(f"{RAW}-no-{keyword}")
    assert row.chosen == "fla"
    assert why(row) == f"FlashKDA requires {keyword}=True"


@pytest.mark.parametrize(
    ("context", "dtype", "dim", "says"),
    [
        ("grad", "bfloat16", 128, "only supports inference mode"),
        ("no_grad", "float32", 128, "requires bfloat16, got torch.float32"),
        ("no_grad", "bfloat16", 64, "requires K=128, got 64"),
        ("no_grad", "bfloat16", 128, "requires use_gate_in_kernel=True"),
    ],
)
def test_dtype_head_size_and_gradients_have_their_reason(
    context: str, dtype: str, dim: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Backend())
    row = asked(context, dtype, dim=dim)
    assert row.chosen == "fla"
    assert says in why(row)


def test_absent_or_switched_off_still_says_what_the_call_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Backend(available=False)
    monkeypatch.setattr(Backend, "package_name", "no_such_package")
    install(monkeypatch, gone)
    assert (
        why(asked("no_grad")) == "package no_such_package is not installed; FlashKDA requires use_gate_in_kernel=True"
    )
    assert why(asked(RAW)) == "package no_such_package is not installed"
    install(monkeypatch, Backend(enabled=False))
    assert why(asked(RAW)) == "switched off (FLA_FLASH_KDA)"
    monkeypatch.setenv("FLA_DISABLE_BACKEND_DISPATCH", "1")
    row = asked(RAW)
    assert (row.chosen, why(row, "every backend")) == ("fla", "FLA_DISABLE_BACKEND_DISPATCH=1")
    assert "FLA_DISABLE_BACKEND_DISPATCH=1" in row.ran


def test_an_op_without_a_backend_is_fla_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Backend())
    row = asked("no_grad", workload="gdn")
    assert (row.chosen, row.refused) == ("fla", ())
    assert {row.context for row in gate_rows(CpuDevice(), dtypes=("float32",))} == set(CONTEXTS)


def test_a_version_that_keeps_its_backends_otherwise_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Backend())
    del sys.modules["fla.backends"]._function_registries
    row = asked("no_grad")
    assert row.status == "unavailable"
    assert "cannot be asked: AttributeError" in (row.detail or "")


def test_without_fla_a_row_says_so() -> None:
    if "fla" in sys.modules:
        pytest.skip("fla is installed")
    rows = list(gate_rows(CpuDevice(), dtypes=("float32",)))
    assert [(row.op, row.status, row.chosen) for row in rows] == [
        ("fla-gate kda", "unavailable", None),
        ("fla-gate gdn", "unavailable", None),
    ]
    assert all(row.detail for row in rows)
