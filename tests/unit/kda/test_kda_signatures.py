"""Kernel names speak for the path they belong to, and a mixture speaks for none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kdaprof.kda.signatures import SIGNATURES, classify_kernels

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>"
COPY = "void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"
SCAN = "void at::native::tensor_kernel_scan_outer_dim<float, unsigned int, std::plus<float>>"
TRIL = "void at::native::triu_tril_kernel<float, int, false, 4, false>(...)"
GEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(...)"
SGEMM = "ampere_sgemm_32x32_sliced1x4_nn"
GEMV = "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>"
TRSM = "void batch_trsm_left_kernel<float, 256, 4, false, false, false, false, true>(...)"
MEMSET = "Memset (Device)"
OURS = ("kdaprof_kda_fwd_prepare", "kdaprof_kda_fwd_recur")
INDUCTOR = ("triton_poi_fused_exp_mul_3", "triton_red_fused_cumsum_sub_0")
FLA = ("chunk_kda_fwd_kernel_intra_sub_inter", "chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "kda_gate_fwd_kernel")
LIBRARY = (ADD, COPY, SCAN, TRIL, GEMM, SGEMM, MEMSET)


@pytest.mark.parametrize(
    ("names", "path"),
    [
        (OURS, "fused"),
        ((*OURS, COPY, MEMSET), "fused"),
        ((*LIBRARY, TRSM), "tensor"),
        (LIBRARY, "tensor-rows"),
        ((ADD, COPY, GEMV, GEMM), "reference"),
        ((*INDUCTOR, SGEMM, TRSM, TRIL), "compiled"),
        (FLA, "fla"),
        ((*FLA, COPY), "fla"),
        (("void flash_kda::fwd_kernel<64>",), "flashkda"),
    ],
)
def test_each_path_is_known_by_its_kernels(names: tuple[str, ...], path: str) -> None:
    testimony = classify_kernels([*names, *names])
    assert testimony.says == path
    assert testimony.agrees(path) is True
    assert testimony.agrees("fused" if path != "fused" else "tensor") is False


@pytest.mark.parametrize(
    "names",
    [
        (*OURS, *LIBRARY, TRSM),  # a fused forward whose backward went down the tensor path
        (*OURS, GEMM),
        (*OURS, *FLA),
        (*FLA, "void flash_kda::fwd_kernel<64>"),
        (*OURS, *INDUCTOR),
    ],
)
def test_a_mixture_confirms_no_path(names: tuple[str, ...]) -> None:
    testimony = classify_kernels(names)
    assert testimony.says is None
    assert len(testimony.matched) > 1
    assert not any(testimony.agrees(s.path) for s in SIGNATURES)


@pytest.mark.parametrize("names", [(), ("my_kernel", "triton_attention")])
def test_unknown_kernels_cannot_speak(names: tuple[str, ...]) -> None:
    testimony = classify_kernels(names)
    assert testimony.says is None
    assert testimony.agrees("fused") is None


def test_a_library_kernel_that_only_one_path_runs_is_in_no_other_signature() -> None:
    patterns = {s.path: s.kernels for s in SIGNATURES}

    def matches(path: str, name: str) -> bool:
        return any(p.match(name) for p in patterns[path])

    assert [p for p in ("tensor", "tensor-rows", "reference") if matches(p, TRSM)] == ["tensor"]
    assert [p for p in ("tensor", "tensor-rows", "reference") if matches(p, TRIL)] == ["tensor", "tensor-rows"]
    assert [p for p in ("tensor", "tensor-rows", "reference") if matches(p, ADD)] == [
        "tensor",
        "tensor-rows",
        "reference",
    ]


def test_the_fused_prefix_is_the_one_the_kernels_declare() -> None:
    from kdaprof.kda import fused

    assert classify_kernels([f"{fused.KERNEL_PREFIX}anything"]).says == "fused"


@pytest.mark.parametrize("module", ["kdaprof.kda", "kdaprof.kda.signatures", "kdaprof.kda.declared"])
def test_light_modules_import_no_torch(module: str) -> None:
    code = f"import {module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
