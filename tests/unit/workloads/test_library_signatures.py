"""Kernel names of attention and of products, as cards with these backends show them, speak for the right path."""

from __future__ import annotations

import pytest

from kdaprof.analysis.evidence import judge_path
from kdaprof.analysis.view import KernelRow
from kdaprof.runs.cells import CellKey, make_shape
from kdaprof.runs.record import CellRecord, Observed
from kdaprof.workloads.gemm import facts as gemm
from kdaprof.workloads.mha import facts as mha

FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t>, true>()"
CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0"
EFFICIENT = (
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::Sm80>)"
)
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*)"
SGEMM = "ampere_sgemm_128x64_nn"


def kernels_say(workload: str, path: str, dtype: str, *names: str) -> tuple[str | None, str]:
    sizes = mha.FIELD_SHAPE if workload == "mha" else gemm.FIELD_SHAPE
    key = CellKey(workload, path, "plain", "eager", "fwd", make_shape(workload, sizes), dtype)
    signatures = mha.signatures(key) if workload == "mha" else gemm.signatures(key)
    cell = CellRecord(key=key, status="ok", observed=Observed(device="cuda", signatures=signatures))
    rows = tuple(KernelRow(name=name, calls=1, busy_ns=100_000) for name in names)
    evidence = judge_path(cell, rows, len(rows), None)
    return next(w.says for w in evidence.witnesses if w.name == "kernels"), evidence.verdict


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("flash", (FLASH,)),
        ("cudnn", (CUDNN,)),
        ("mem-efficient", (EFFICIENT,)),
        ("math", (SGEMM, SOFTMAX)),
        ("composite", (SGEMM, SOFTMAX)),
        ("math", ("nvjet_tst_128x64_64x8_2x1_v_bz_NNT", SOFTMAX)),
    ],
)
def test_each_backend_is_known_by_its_kernels(path: str, names: tuple[str, ...]) -> None:
    assert kernels_say("mha", path, "bfloat16", *names) == (path, "partial")


@pytest.mark.parametrize(
    ("path", "names", "says"),
    [
        ("flash", (CUDNN,), "cudnn"),
        ("cudnn", (FLASH,), "flash"),
        ("math", (EFFICIENT,), "mem-efficient"),
        ("composite", (FLASH,), "flash"),
        ("flash", (SGEMM, SOFTMAX), "math"),
    ],
)
def test_another_backend_than_the_label_contradicts(path: str, names: tuple[str, ...], says: str) -> None:
    assert kernels_say("mha", path, "bfloat16", *names) == (says, "contradicted")


PRODUCTS = [
    ("fp32", SGEMM),
    ("fp32", "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4_execute"),
    ("fp32", "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nn_align1>(Params)"),
    ("tf32", "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize256x128x32_cgasize1x2x1_stage4_hgmma64x128x8"),
    ("tf32", "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4>(Params)"),
    ("fp16", "nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_NNN"),
    ("fp16", "sm90_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off"),
    ("fp16", "ampere_h16816gemm_256x128_ldg8_stages_32x3_nn"),
    ("bf16", "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NNT"),
    ("bf16", "nvjet_sm100_tst_64x32_64x16_2x1_2cta_v_bz_TNN"),
    ("bf16", "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_nn"),
    ("fp8", "nvjet_qqtst_128x256_128x5_2x1_v_bz_TNT"),
    ("fp8", "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_bias_bf16"),
]


@pytest.mark.parametrize(("path", "name"), PRODUCTS)
def test_each_precision_is_known_by_its_kernel(path: str, name: str) -> None:
    assert kernels_say("gemm", path, gemm.DTYPE_OF[path], name) == (path, "partial")


def test_float32_that_ran_as_tf32_contradicts() -> None:
    name = next(name for path, name in PRODUCTS if path == "tf32")
    assert kernels_say("gemm", "fp32", "float32", name) == ("tf32", "contradicted")
