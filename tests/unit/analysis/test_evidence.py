"""Three witnesses: what each says, and what they say together."""

from __future__ import annotations

from typing import Any

import pytest
import scenes

from kdaprof.analysis.evidence import judge_path
from kdaprof.analysis.view import KernelRow
from kdaprof.runs.record import Capture, CellRecord, DeclaredCounts, GateObservation, PathSignature
from kdaprof.runs.results import Evidence

SIGNATURES = (
    PathSignature(path="fused", patterns=(r"^kdaprof_",)),
    PathSignature(path="tensor", patterns=(r"trsm|triangular", r"at::native::", r"gemm")),
    PathSignature(path="tensor-rows", patterns=(r"at::native::", r"gemm")),
    PathSignature(path="compiled", patterns=(r"^triton_(poi|red|per|tem)_",)),
    PathSignature(path="fla", patterns=(r"^chunk_gated_delta_rule|^chunk_kda",)),
    PathSignature(path="flashkda", patterns=(r"flash_kda",)),
)


def rows(*each: tuple[str, int, int]) -> tuple[KernelRow, ...]:
    return tuple(KernelRow(name=name, calls=calls, busy_ns=busy) for name, calls, busy in each)


FUSED = rows(("kdaprof_kda_fwd_prepare", 1, 70_000), ("kdaprof_kda_fwd_recur", 1, 58_000))
ATEN = rows(("void at::native::elementwise_kernel<128, 2>", 73, 400_000), ("sm80_xmma_gemm_f32f32", 130, 700_000))
TRSM = rows(("void batch_trsm_left_kernel<float>", 1, 20_000))
INDUCTOR = rows(("triton_poi_fused_exp_mul_0", 40, 100_000))
FLA = rows(("chunk_gated_delta_rule_fwd_kernel_h", 1, 90_000))
FLASH = rows(("void flash_kda_fwd_k2<64>", 1, 400_000))
FILL = rows(("void at::native::vectorized_elementwise_kernel<FillFunctor>", 2, 4_000))

DECLARED = {
    "fused": DeclaredCounts(launches=(2, 3), allocs=(2, 3)),
    "tensor": DeclaredCounts(launches=(260, 310), allocs=(260, 300)),
}


def cell(path: str, phase: str = "fwd", mode: str = "eager", context: str = "plain", **seen: Any) -> CellRecord:
    details = {"signatures": SIGNATURES, "declared": DECLARED.get(path), **seen}
    name = scenes.key(path, phase, mode, context=context)
    return CellRecord(key=name, status="ok", observed=scenes.observed(path, phase, **details))


def says(evidence: Evidence) -> dict[str, str | None]:
    return {witness.name: witness.says for witness in evidence.witnesses}


def test_three_that_agree_confirm() -> None:
    evidence = judge_path(cell("fused"), FUSED, 2, 2)
    assert evidence.verdict == "confirmed"
    assert says(evidence) == {"gate": "fused", "kernels": "fused", "counts": "fused"}
    gate, kernels, counts = (witness.detail for witness in evidence.witnesses)
    assert gate == "fused 100/100 forward, 0/0 backward"
    assert kernels == "2 of 2 device events a call are of fused, e.g. kdaprof_kda_fwd_prepare ×1"
    assert counts == "2 launches (declared 2 to 3), 2 allocations (declared 2 to 3)"


def test_the_tensor_path_is_confirmed_by_torchs_kernels() -> None:
    assert judge_path(cell("tensor"), ATEN + TRSM, 287, 282).verdict == "confirmed"


@pytest.mark.parametrize(
    ("label", "ran", "launches"), [("tensor", FUSED, 2), ("fused", ATEN + TRSM, 287), ("fused", INDUCTOR + ATEN, 236)]
)
def test_a_mislabelled_path_is_contradicted(label: str, ran: tuple[KernelRow, ...], launches: int) -> None:
    # The gate's own record is what was believed in the field; the device knows better.
    evidence = judge_path(cell(label), ran, launches, None)
    assert evidence.verdict == "contradicted"
    assert says(evidence)["gate"] == label
    assert says(evidence)["kernels"] not in (label, None)
    assert says(evidence)["counts"] == f"not {label}"


def test_a_mislabel_that_only_one_witness_sees_is_contradicted() -> None:
    silent = {"gate": None, "declared": None}
    assert judge_path(cell("tensor", **silent), FUSED, 2, 2).verdict == "contradicted"
    assert (
        judge_path(cell("fused", gate=scenes.gate("tensor"), declared=None), (), None, None).verdict == "contradicted"
    )
    assert judge_path(cell("fused", gate=None), (), 287, None).verdict == "contradicted"


def test_counts_outside_the_declared_range_contradict_and_the_border_does_not() -> None:
    assert judge_path(cell("tensor"), ATEN + TRSM, 310, 300).verdict == "confirmed"
    assert judge_path(cell("tensor"), ATEN + TRSM, 311, 300).verdict == "contradicted"
    assert judge_path(cell("tensor"), ATEN + TRSM, 287, 259).verdict == "contradicted"


def test_partial_when_a_witness_is_silent_and_the_kernels_speak() -> None:
    assert judge_path(cell("fused", declared=None), FUSED, 2, 2).verdict == "partial"
    assert judge_path(cell("fused", gate=None), FUSED, 2, 2).verdict == "partial"
    assert judge_path(cell("fused"), FUSED, None, None).verdict == "partial"


def test_without_a_device_the_gate_stands_alone() -> None:
    evidence = judge_path(cell("fused", device="cpu", interpreted=True), (), None, None)
    assert evidence.verdict == "gate-only"
    assert [w.detail for w in evidence.witnesses[1:]] == ["no device", "no device"]


def test_none_when_nobody_speaks() -> None:
    assert judge_path(cell("fused", gate=None, declared=None), (), None, None).verdict == "none"
    failed = scenes.failed_scene("fused").cell
    evidence = judge_path(failed, (), None, None)
    assert evidence.verdict == "none"
    assert "RuntimeError" in evidence.witnesses[0].detail


# ---------------------------------------------------------------- gate


def test_a_gate_that_fell_back_for_some_calls_names_the_other_path() -> None:
    gate = GateObservation(calls=12, chosen="fused", forward={"fused": 10, "tensor": 2}, backward={})
    evidence = judge_path(cell("fused", gate=gate), FUSED, 2, 2)
    assert says(evidence)["gate"] == "tensor"
    assert evidence.verdict == "contradicted"


def test_a_backward_on_another_path_names_that_path() -> None:
    gate = GateObservation(calls=12, chosen="fused", forward={"fused": 12}, backward={"tensor": 12})
    assert says(judge_path(cell("fused", "fwdbwd", gate=gate), FUSED, 2, 2))["gate"] == "tensor"


def test_a_backward_that_was_never_counted_silences_the_gate() -> None:
    evidence = judge_path(cell("fused", "fwdbwd", gate=scenes.gate("fused")), FUSED, 2, 2)
    assert says(evidence)["gate"] is None
    assert "no backward call was counted" in evidence.witnesses[0].detail
    assert evidence.verdict == "partial"


def test_a_traced_decision_speaks_without_counts() -> None:
    gate = GateObservation(calls=5, chosen="fused", forward={}, backward={}, traced=True)
    evidence = judge_path(cell("fused", "fwdbwd", context="compile", gate=gate), FUSED, 2, 2)
    assert says(evidence)["gate"] == "fused"
    assert "traced" in evidence.witnesses[0].detail


# ---------------------------------------------------------------- kernels


def kernels_say(label: str, ran: tuple[KernelRow, ...], context: str = "plain") -> str | None:
    return says(judge_path(cell(label, context=context), ran, None, None))["kernels"]


def test_helper_kernels_of_torch_do_not_outvote_a_path_of_its_own_kernels() -> None:
    assert kernels_say("fused", FUSED + FILL) == "fused"
    assert kernels_say("fla", FLA + ATEN) == "tensor"  # 8 % of the device time: it did not do the work
    assert kernels_say("fla", FLA + FILL) == "fla"


def test_torch_kernels_that_hold_the_device_time_speak_although_ours_were_seen() -> None:
    # A fused forward whose backward silently ran the tensor path.
    assert kernels_say("fused", FUSED + rows(("void at::native::elementwise_kernel", 900, 4_800_000))) == "tensor"


def test_a_solve_tells_tensor_from_its_row_by_row_sibling() -> None:
    assert kernels_say("tensor-rows", ATEN) == "tensor-rows"
    assert kernels_say("tensor-rows", ATEN + TRSM) == "tensor"
    assert kernels_say("tensor", ATEN + TRSM) == "tensor"


def test_paths_of_the_same_kernels_are_told_apart_by_counts_and_named_together() -> None:
    same = tuple(PathSignature(path=path, patterns=(r"gemm|at::",)) for path in ("tensor", "tensor-rows"))
    for label, said in (("tensor-rows", "tensor-rows"), ("fused", "tensor")):
        (_, witness, _) = judge_path(cell(label, signatures=same), ATEN, None, None).witnesses
        assert witness.says == said
        assert f"(the same as {'tensor' if said == 'tensor-rows' else 'tensor-rows'})" in witness.detail


def test_inductor_kernels_speak_for_compiled_except_around_our_own_kernels() -> None:
    assert kernels_say("compiled", INDUCTOR + ATEN) == "compiled"
    assert kernels_say("tensor", INDUCTOR + ATEN) == "compiled"
    assert kernels_say("fused", INDUCTOR + FUSED, context="compile") == "fused"


def test_torch_compile_around_the_tensor_path_is_that_path() -> None:
    assert kernels_say("tensor", INDUCTOR + ATEN, context="compile") == "tensor"


def test_a_peer_that_hands_the_call_on_is_seen() -> None:
    assert kernels_say("fla", FLASH + FLA) == "flashkda"
    assert kernels_say("flashkda", FLASH + FLA) == "flashkda"


def test_a_name_counts_for_the_most_telling_signature_it_matches() -> None:
    # A peer's loose pattern, searched, matches our kernels' names as well.
    loose = (SIGNATURES[0], PathSignature(path="fla", patterns=(r"kda_",)))
    for label, said in (("fused", "fused"), ("fla", "fused")):
        assert says(judge_path(cell(label, signatures=loose), FUSED, None, None))["kernels"] == said


def test_kernels_without_a_signature_deny_a_path_of_its_own_kernels_only() -> None:
    unknown = rows(("someone_elses_kernel", 3, 10_000))
    assert kernels_say("fused", unknown) == "not fused"
    assert kernels_say("tensor", unknown) is None


# ---------------------------------------------------------------- graphs


def test_a_replay_is_counted_by_its_device_events() -> None:
    captured = Capture(captured=True, pool_bytes=1)
    evidence = judge_path(cell("fused", mode="graph", capture=captured), FUSED, 1, 0)
    assert evidence.verdict == "confirmed"
    assert judge_path(cell("fused", mode="graph", capture=captured), FUSED + ATEN, 1, 0).verdict == "contradicted"
    nodes = Capture(captured=True, pool_bytes=1, nodes=287)
    assert judge_path(cell("fused", mode="graph", capture=nodes), FUSED, 1, 0).verdict == "contradicted"
