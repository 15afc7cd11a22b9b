"""The paths' own kernel names, judged by the second witness as a run stores them."""

from __future__ import annotations

import pytest

from kdaprof.analysis.evidence import judge_path
from kdaprof.analysis.view import KernelRow
from kdaprof.kda.signatures import SIGNATURES
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.record import CellRecord, Observed
from kdaprof.runs.results import Witness

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>"
COPY = "void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"
TRIL = "void at::native::triu_tril_kernel<float, int, false, 4, false>(...)"
GEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(...)"
TRSM = "void batch_trsm_left_kernel<float, 256, 4, false, false, false, false, true>(...)"
MEMSET = "Memset (Device)"
OURS = ("kdaprof_kda_fwd_prepare", "kdaprof_kda_fwd_recur")
INDUCTOR = ("triton_poi_fused_exp_mul_3", "triton_red_fused_cumsum_sub_0")
FLA = ("chunk_kda_fwd_kernel_intra_sub_inter", "chunk_gated_delta_rule_fwd_kernel_h_blockdim64")
LIBRARY = (ADD, COPY, TRIL, GEMM, MEMSET)

BY_NAMES = [
    (OURS, "fused"),
    ((*OURS, COPY, MEMSET), "fused"),
    ((*LIBRARY, TRSM), "tensor"),
    (LIBRARY, "tensor-rows"),
    ((ADD, COPY, GEMM), "reference"),
    ((*INDUCTOR, GEMM, TRSM, TRIL), "compiled"),
    (FLA, "fla"),
    (("void flash_kda::fwd_kernel<64>",), "flashkda"),
]
LABELS = ("fused", "tensor", "compiled", "fla", "flashkda")


def kernels_say(names: tuple[str, ...], label: str) -> Witness:
    shape = make_shape("kda", (10, 512, 12, 64, 64, 16))
    key = CellKey("kda", label, "plain", "eager", "fwd", shape, "float32")
    cell = CellRecord(key=key, status="ok", observed=Observed(device="cuda", signatures=SIGNATURES))
    rows = [KernelRow(name=name, calls=1, busy_ns=1000) for name in names]
    return next(w for w in judge_path(cell, rows, None, None).witnesses if w.name == "kernels")


@pytest.mark.parametrize(("names", "path"), BY_NAMES)
def test_a_path_is_known_by_its_kernels(names: tuple[str, ...], path: str) -> None:
    assert kernels_say(names, path).says == path


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize(("names", "path"), [row for row in BY_NAMES if row[1] in LABELS])
def test_a_mislabelled_path_is_never_confirmed(names: tuple[str, ...], path: str, label: str) -> None:
    if label != path:
        assert kernels_say(names, label).says != label


@pytest.mark.parametrize("names", [("my_kernel", "triton_attention")])
def test_unknown_kernels_deny_a_path_that_has_kernels_of_its_own(names: tuple[str, ...]) -> None:
    assert kernels_say(names, "fused").says == "not fused"
    assert kernels_say(names, "tensor").says is None
