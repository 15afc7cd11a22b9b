"""FLA's kernels for KDA's relatives: called by its signature, known by their kernels, absent with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from torch import Tensor

from kdaprof.analysis.evidence import kernels_by_path
from kdaprof.analysis.view import KernelRow
from kdaprof.cli.main import main
from kdaprof.errors import UnavailableError
from kdaprof.kda.peers.calls import peer_op
from kdaprof.kda.peers.facts import FLA, PeerFacts, facts_of
from kdaprof.kda.peers.loading import Installed, load
from kdaprof.kda.signatures import SIGNATURES
from kdaprof.probe import real
from kdaprof.runs.cells import make_shape
from kdaprof.runs.document import run_schema
from kdaprof.workloads.delta.call import delta_inputs, recurrence
from kdaprof.workloads.delta.facts import DELTA
from kdaprof.workloads.inputs import InputSpec


def gdn(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None, initial_state: Any = None,
    output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, use_beta_sigmoid_in_kernel: bool = False,
    **kwargs: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """`chunk_gated_delta_rule` as 0.6.0 spells it where it matters here; what it would swallow is a failure."""
    assert not kwargs
    assert not use_qk_l2norm_in_kernel
    assert not use_beta_sigmoid_in_kernel
    assert not output_final_state
    assert scale == q.shape[-1] ** -0.5
    return recurrence("gdn", q, k, v, g, beta), None


def gdn2(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor, w: Tensor, scale: float | None = None,
    output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
    **kwargs: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """`chunk_gdn2`, likewise."""
    assert not kwargs
    assert not use_qk_l2norm_in_kernel
    assert not use_gate_in_kernel
    assert not output_final_state
    return recurrence("gdn2", q, k, v, g, b, w), None


def precond_kda(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, g_atk: Tensor, beta_atk: Tensor, beta: Tensor,
    scale: float | None = None, output_final_state: bool = False, use_gate_in_kernel: bool = False, **kwargs: Any,
) -> tuple[Tensor, None, None]:  # fmt: skip
    """`chunk_precond_kda`, likewise."""
    assert not kwargs
    assert not use_gate_in_kernel
    assert not output_final_state
    return recurrence("precond_kda", q, k, v, g, g_atk, beta_atk, beta), None, None


PAPER: dict[str, Callable[..., Any]] = {"gdn": gdn, "gdn2": gdn2, "precond_kda": precond_kda}


@pytest.mark.parametrize("workload", DELTA)
def test_the_adapter_names_every_argument(workload: str) -> None:
    shape = make_shape(workload, (1, 20, 2, 8, 8, 16))
    spec = InputSpec(shape=shape, dtype="float32", device="cpu", seed=0, requires_grad=True)
    inputs = delta_inputs(workload, spec, 0)

    def loader(facts: PeerFacts, device_type: str) -> Installed:
        assert facts.op == workload
        return Installed(facts, "0.6.0", PAPER[workload])

    op = peer_op("fla", "cuda:0", op=workload, trains=True, loader=loader)
    o = op(*inputs.tensors())
    assert torch.equal(o, recurrence(workload, *inputs.tensors()))
    assert all(grad is not None for grad in torch.autograd.grad(o, inputs.tensors(), inputs.do))


@pytest.mark.parametrize("workload", DELTA)
def test_a_version_without_the_op_is_an_unavailable_path(workload: str) -> None:
    facts = facts_of("fla", workload)
    older = ModuleNotFoundError(f"No module named '{facts.module}'", name=facts.module)

    def import_module(name: str) -> object:
        if name == facts.module:
            raise older
        return object()

    with pytest.raises(UnavailableError, match=f"cannot be imported: .*'{facts.module}'"):
        load(facts, "cuda", import_module=import_module)
    with pytest.raises(UnavailableError, match=f"has no {facts.module}.{facts.function}"):
        load(facts, "cuda", import_module=lambda _: object())


def test_flashkda_computes_kda_alone() -> None:
    with pytest.raises(UnavailableError, match="path 'flashkda' does not compute gdn"):
        peer_op("flashkda", "cuda:0", op="gdn")


def test_counts_of_one_op_are_not_declared_for_another() -> None:
    assert FLA.counts
    assert all(facts_of("fla", workload).counts == {} for workload in DELTA)


def test_the_functions_on_paper_take_what_the_installed_ones_take() -> None:
    from kdaprof.kda.peers.arguments import named_parameters

    for workload in DELTA:
        facts = facts_of("fla", workload)
        module = pytest.importorskip(facts.module, reason="fla-core is not installed")
        assert named_parameters(PAPER[workload]) <= named_parameters(getattr(module, facts.function))


KERNELS = (
    "chunk_gated_delta_rule_fwd_kkt_solve_kernel",
    "recompute_w_u_fwd_kernel",
    "chunk_fwd_kernel_o",
    "chunk_bwd_kernel_dqkwg",
    "prepare_wy_repr_bwd_kernel",
    "chunk_gdn2_fwd_kernel_inter_solve_fused",
    "chunk_gdn2_bwd_kernel_intra",
    "recompute_w_u_fwd_gdn2_kernel",
    "chunk_precond_kda_fwd_kernel_intra_token_parallel",
    "chunk_precond_kda_bwd_kernel_dAv",
    "chunk_gla_fwd_kernel_o",
)
"""Of 0.6.0, by name."""


@pytest.mark.parametrize("name", KERNELS)
def test_its_kernels_are_known_by_name(name: str) -> None:
    assert list(kernels_by_path(SIGNATURES, [KernelRow(name=name, calls=1, busy_ns=1)])) == ["fla"]


# ---------------------------------------------------------------- as typed


@pytest.mark.parametrize("workload", ["gdn", "gdn2", "precond-kda"])
def test_a_relative_is_probed_as_typed(
    workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(real, "BUSY_WINDOW_NS", 0)
    flags = ["--workload", workload, "--device", "cpu", "--shape", "1,20,1,8,8", "--phases", "fwdbwd"]
    assert main(["probe", *flags, "--rounds", "1", "--samples", "1", "--out", str(tmp_path / "run"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(run_schema()).validate(document)
    eager = {cell["path"]: cell for cell in document["cells"] if cell["mode"] == "eager"}
    (ours,) = eager.keys() - {"fla"}
    assert eager[ours]["workload"] == workload.replace("-", "_")
    assert eager[ours]["status"] == "ok"
    assert 0 < eager[ours]["facts"]["error_l2"]["value"] < 1e-5
    assert eager[ours]["evidence"]["verdict"] == "gate-only"
    assert eager["fla"]["status"] == "unavailable"
    assert eager["fla"]["error"]["text"]
    assert (tmp_path / "run/report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--workload", "gdn2", "--path", "fused"], "choose from tensor, tensor-rows, compiled, reference, fla"),
        (["--workload", "precond-kda", "--paths", "tensor,fla"], "choose from reference, fla"),
        (["--workload", "gdn", "--paths", ""], "nothing named"),
        (["--workload", "gdn3"], "choose kda, step, gdn, gdn2, precond-kda"),
        (["--workload", "gdn", "--batch", "2"], "only with --workload step"),
    ],
)
def test_what_it_has_no_meaning_for_is_refused(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", *flags]) == 2
    assert says in capsys.readouterr().err
