"""A peer as a path: only what its version takes is passed, its dispatch is read, and it refuses with the reason."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from kda_calls import make_call
from peer_parts import Registry, chunk_kda, flash_fwd, handing, installed, loads, registry
from torch import Tensor

from kdaprof.analysis.evidence import kernels_by_path
from kdaprof.analysis.view import KernelRow
from kdaprof.errors import UnavailableError
from kdaprof.kda import counters, gate_records, kda, record
from kdaprof.kda.declared import declared_counts
from kdaprof.kda.peers.arguments import named_parameters, options
from kdaprof.kda.peers.calls import peer_op
from kdaprof.kda.peers.facts import FLA, FLASHKDA, PEERS
from kdaprof.kda.peers.loading import load
from kdaprof.kda.peers.records import watch_dispatch
from kdaprof.kda.shapes import OpShape
from kdaprof.kda.signatures import SIGNATURES
from kdaprof.kda.traffic import rate_name
from kdaprof.probe.check import TOLERANCE, tolerance_of
from kdaprof.runs.cells import PATHS

__all__ = ["registry"]


def flash_call() -> tuple[Tensor, ...]:
    call = make_call(1, 24, 2, 128, 128, requires_grad=False).to(torch.bfloat16)
    return tuple(x.contiguous() for x in call.tensors)


# ---------------------------------------------------------------- arguments


def test_only_what_the_signature_names_is_passed() -> None:
    def swallows(q: int, scale: float = 1.0, **kwargs: object) -> None: ...

    assert named_parameters(swallows) == {"q", "scale"}
    assert options("peer 1", swallows, needed=("q",), wanted={"scale": 2.0, "use_gate_in_kernel": False}) == {
        "scale": 2.0
    }


@pytest.mark.parametrize(
    ("signature", "says"),
    [
        ("lambda q, decay: 0", "takes no g"),
        ("lambda q, g, A_log: 0", "also asks for A_log"),
        ("lambda q, **kwargs: 0", "takes no g"),
    ],
)
def test_a_version_with_other_arguments_is_refused(signature: str, says: str) -> None:
    with pytest.raises(UnavailableError, match=says) as caught:
        options("fla-core 9.0", eval(signature), needed=("q", "g"), wanted={})
    assert "fla-core 9.0" in str(caught.value)


# ---------------------------------------------------------------- finding it


def fails(error: Exception) -> Any:
    def import_module(name: str) -> Any:
        raise error

    return import_module


def test_not_installed_gives_the_line_that_installs() -> None:
    for facts in (replace(peer, distributions=("no-such-distribution",)) for peer in PEERS.values()):
        absent = ModuleNotFoundError("no", name=facts.module.partition(".")[0])
        with pytest.raises(UnavailableError, match=r"is not installed \((pip|git)") as caught:
            load(facts, "cuda", import_module=fails(absent))
        assert facts.install in str(caught.value)


def test_a_folder_of_that_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone in the working directory, which Python imports as an empty package."""
    (tmp_path / "cloned_kda" / "docs").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    facts = replace(FLA, distributions=("no-such-distribution",), module="cloned_kda.ops")
    with pytest.raises(UnavailableError, match="no-such-distribution is not installed"):
        load(facts, "cpu")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ModuleNotFoundError("No module named 'einops'", name="einops"), r"No module named 'einops' \(pip install ei"),
        (ImportError("_C.so: undefined symbol: _ZN3c10"), "does not match torch"),
        (AttributeError("module 'triton' has no attribute 'x'"), "cannot be imported: AttributeError: module 'triton'"),
    ],
)
def test_a_failed_import_gives_its_own_error(error: Exception, says: str) -> None:
    with pytest.raises(UnavailableError, match=says):
        load(FLA, "cuda", import_module=fails(error))


def test_a_peer_needs_a_gpu() -> None:
    with pytest.raises(UnavailableError, match="needs an NVIDIA GPU; this run is on cpu"):
        load(FLA, "cpu", import_module=lambda _: object())


def test_a_function_that_is_gone_is_named() -> None:
    with pytest.raises(UnavailableError, match=r"has no fla\.ops\.kda\.chunk_kda"):
        load(FLA, "cuda", import_module=lambda _: object())


# ---------------------------------------------------------------- FLA


@pytest.mark.usefixtures("registry")
def test_fla_gives_the_reference_and_its_gradients_and_is_counted() -> None:
    op = peer_op("fla", "cuda:0", trains=True, loader=loads(installed()))
    call = make_call()
    for _ in range(3):
        o = op(*call.tensors)
        grads = torch.autograd.grad(o.sum(), call.tensors)
    expected, _ = kda(*call.tensors, path="reference")
    wanted = torch.autograd.grad(expected.sum(), call.tensors)
    torch.testing.assert_close(o, expected)
    for got, want in zip(grads, wanted, strict=True):
        torch.testing.assert_close(got, want)
    assert (counters()["fla"].fwd, counters()["fla"].bwd) == (3, 3)
    assert str(counters()) == "kda fused=0 tensor=0 reference=1/1 fla=3/3"


def test_a_call_that_was_handed_on_counts_for_the_path_that_took_it(registry: Registry) -> None:
    op = peer_op("fla", "cuda:0", loader=loads(installed(function=handing(registry, "flash_kda"))))
    call = make_call(requires_grad=False)
    with record() as seen, torch.no_grad():
        op(*call.tensors)
        op(*call.tensors)
    assert seen.paths("fwd") == ("flashkda",)
    assert counters()["flashkda"].fwd == 2
    with record() as seen:
        op(*call.tensors)
    assert seen.paths("fwd") == ("fla",)  # with gradients it was refused, though the log had spoken already
    decision = next(tally.decision for tally in gate_records() if tally.decision.chosen == "fla")
    assert decision.why_not("flashkda") == "FlashKDA only supports inference mode"


def test_a_backend_that_is_no_path_speaks_under_its_own_name(registry: Registry) -> None:
    op = peer_op("fla", "cuda:0", loader=loads(installed(function=handing(registry, "tilelang"))))
    with record() as seen, torch.no_grad():
        op(*make_call(requires_grad=False).tensors)
    assert seen.paths("fwd") == ("tilelang",)


def test_without_readable_records_nobody_vouches() -> None:
    op = peer_op("fla", "cuda:0", loader=loads(installed()))
    with record() as seen:
        op(*make_call().tensors)
    assert seen.records == ()


def test_watching_leaves_the_peers_log_as_it_was(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    registry.say("a", "[FLA Backend] x.chunk_kda -> flash_kda")
    before = logging.getLogger("fla").level
    with watch_dispatch() as records:
        registry.say("a", "[FLA Backend] x.chunk_kda -> flash_kda")
        registry.say("b", "something else")
    assert records.handed_to("chunk_kda") == "flash_kda"
    assert records.handed_to("chunk_kda_fwd") is None
    assert registry._logged == {"a", "b"}
    assert (logging.getLogger("fla").level, logging.getLogger("fla").handlers) == (before, [])
    assert caplog.records == []


def test_a_build_for_another_torch_is_an_unavailable_path() -> None:
    def refuses(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float) -> Tensor:
        raise RuntimeError("all tensors must be on CUDA")

    op = peer_op("fla", "cuda:0", loader=loads(installed(function=refuses)))
    with pytest.raises(UnavailableError, match=r"fla-core 0\.6\.0 does not match torch .*of tensors that are on CUDA"):
        op(*make_call().tensors)

    def breaks(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float) -> Tensor:
        raise RuntimeError("CUDA error: an illegal memory access")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        peer_op("fla", "cuda:0", loader=loads(installed(function=breaks)))(*make_call().tensors)


# ---------------------------------------------------------------- FlashKDA


def test_flashkda_gets_raw_gates_and_gives_the_reference() -> None:
    op = peer_op("flashkda", "cuda:0", loader=loads(installed("flashkda", flash_fwd, "0.1")))
    args = flash_call()
    expected, _ = kda(*(x.double() for x in args), path="reference")
    for _ in range(2):
        o = op(*args)
        error = float((o.double() - expected).norm() / expected.norm())
        assert error < tolerance_of("flashkda", "bfloat16")
    changed = args[3].clone().mul_(2)
    args[3].copy_(changed)  # in place, as a static input is refilled
    renewed, _ = kda(*(x.double() for x in args), path="reference")
    o = op(*args)
    assert float((o.double() - renewed).norm() / renewed.norm()) < tolerance_of("flashkda", "bfloat16")
    assert float((o.double() - expected).norm() / expected.norm()) > 0.05
    assert counters()["flashkda"].fwd == 3


def test_flashkda_refuses_what_it_is_not_made_for() -> None:
    loader = loads(installed("flashkda", flash_fwd, "0.1"))
    with pytest.raises(UnavailableError, match="has no backward"):
        peer_op("flashkda", "cuda:0", trains=True, loader=loader)
    with pytest.raises(UnavailableError, match="cannot run in context checkpoint"):
        peer_op("flashkda", "cuda:0", context="checkpoint", loader=loader)
    op = peer_op("flashkda", "cuda:0", loader=loader)
    with pytest.raises(UnavailableError, match="takes bfloat16, not float32"):
        op(*make_call().tensors)
    with pytest.raises(UnavailableError, match="K = V = 128 alone, not K = 16, V = 32"):
        op(*make_call(requires_grad=False).to(torch.bfloat16).tensors)
    with pytest.raises(UnavailableError, match="call it without gradients"):
        op(*(x.requires_grad_() for x in flash_call()))
    steep = list(flash_call())
    steep[3] = torch.full_like(steep[3], -7.0)
    with pytest.raises(UnavailableError, match="-5 and above; these reach -7"):
        op(*steep)


# ---------------------------------------------------------------- what is declared


def test_a_peers_tolerance_is_its_own_and_ours_stays() -> None:
    assert tolerance_of("fla", "float32") == FLA.tolerance["float32"]
    assert 1.4e-3 < tolerance_of("fla", "float32") <= 1e-2  # tf32 as measured fits, a wrong result does not
    for path in PATHS:
        for dtype, ours in TOLERANCE.items():
            assert path in PEERS or tolerance_of(path, dtype) == ours
    assert all(set(facts.tolerance) == set(facts.dtypes) == set(facts.rates) for facts in PEERS.values())


def test_a_peers_ceiling_is_that_of_its_instruction() -> None:
    assert rate_name("fla", "float32") == "matmul_tf32"
    assert rate_name("flashkda", "bfloat16") == "matmul_bfloat16"


FLA_KERNELS = (
    "chunk_local_cumsum_vector_kernel",
    "chunk_kda_fwd_kernel_intra_sub_chunk",
    "chunk_kda_fwd_kernel_inter_solve_fused",
    "recompute_w_u_fwd_kda_kernel",
    "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
    "chunk_gla_fwd_kernel_o",
    "chunk_kda_bwd_kernel_dAv",
    "chunk_gated_delta_rule_bwd_kernel_dhu_blockdim64",
    "chunk_kda_bwd_kernel_wy_dqkg_fused",
    "chunk_kda_bwd_kernel_intra",
    "kda_gate_chunk_cumsum_vector_kernel",
)
"""Kernels of 0.6.0 by name."""


def test_the_peers_kernels_are_known_by_name() -> None:
    def path_of(name: str) -> str | None:
        (path,) = kernels_by_path(SIGNATURES, [KernelRow(name=name, calls=1, busy_ns=1)])
        return path

    assert {path_of(name) for name in FLA_KERNELS} == {"fla"}
    assert path_of("void _flash_kda_fwd_recurrence<cute::TiledCopy<…>, 16, 128>") == "flashkda"
    assert path_of("void (anonymous namespace)::_flash_kda_fwd_prepare<cute::TiledCopy<…>>") == "flashkda"


def test_counts_are_declared_for_checked_versions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    production = OpShape(10, 512, 12, 64, 64)
    for version, declared in (("0.6.0", True), ("0.5.9", False), (None, False)):
        monkeypatch.setattr("kdaprof.kda.declared.installed_version", lambda _, version=version: version)
        made = declared_counts("fla", "fwdbwd", production, 16, "float32")
        assert (made is not None) is declared
    monkeypatch.setattr("kdaprof.kda.declared.installed_version", lambda _: "0.6.0")
    for phase, launches, allocs in (("fwd", 9, 11), ("bwd", 10, 23), ("fwdbwd", 19, 34)):
        band = declared_counts("fla", phase, production, 16, "float32")
        assert band is not None
        assert band.launches is not None
        assert band.allocs is not None
        assert band.launches[0] <= launches <= band.launches[1] < 100  # a tensor path takes hundreds
        assert band.allocs[0] <= allocs <= band.allocs[1]
    assert FLASHKDA.counts == {}


def test_the_functions_on_paper_take_what_the_adapter_passes() -> None:
    real = pytest.importorskip("fla.ops.kda", reason="fla-core is not installed").chunk_kda
    assert named_parameters(chunk_kda) <= named_parameters(real)
