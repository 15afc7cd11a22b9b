from __future__ import annotations

import pytest

from kdaprof.analysis.stages import short_kernel, stage_of, stages_of
from kdaprof.analysis.view import KernelRow

COPY = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>(int)>(int, at::native::lambda)"
)
EXP = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda()#2}, std::array<char*, 2ul> >(int, float)"
)
MUL = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor"
    "<float, float, float, at::native::binary_internal::MulFunctor<float> > >(int)>(int)"
)
SOLVE = "void trsm_batch_left_lower<float, float, float, float, 16, 4, false>(cublasTrsmParams<float>)"


@pytest.mark.parametrize(
    ("kernel", "stage"),
    [
        (COPY, "copy"),
        (EXP, "exp"),
        (MUL, "element-wise"),
        (SOLVE, "triangular solve"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_kernel", "matmul"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)", "matmul"),
        ("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNN", "matmul"),
        ("void gemv2N<int, int, float, float, float, 128, 4, 4, 4, 1, false>(cublasGemvParams)", "matmul"),
        (
            "void at::native::tensor_kernel_scan_outer_dim<float, unsigned int, std::plus<float> >(float*)",
            "cumulative sum",
        ),
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<OpaqueType<4u>>()",
            "concatenate",
        ),
        ("void at::native::triu_tril_kernel<float, int, false, 1, false>(TensorInfo<float, int>)", "triangle mask"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)", "fill"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, sum_functor> >(R)", "sum"),
        ("Memcpy DtoD (Device -> Device)", "copy"),
        ("Memcpy HtoD (Pageable -> Device)", "copy between devices and host"),
        ("Memset (Device)", "fill"),
        ("triton_poi_fused_exp_mul_3", "inductor, fused"),
        ("triton_tem_fused_bmm_1", "inductor, matmul"),
        ("some_vendor_kernel", "other"),
    ],
)
def test_a_kernel_is_recognised_by_its_name(kernel: str, stage: str) -> None:
    assert stage_of(kernel) == (None, stage)


def test_our_kernels_name_their_stages_and_shares_are_of_the_wall() -> None:
    rows = [KernelRow(name="kdaprof_kda_fwd_prepare", calls=1, busy_ns=70_000)]
    rows.append(KernelRow(name="kdaprof_kda_fwd_recur", calls=1, busy_ns=58_000))
    stages = stages_of(rows, 200_000)
    assert [(s.name, s.kernels, s.busy_ns, s.share) for s in stages] == [
        ("prepare", 1, 70_000, 0.35),
        ("recur", 1, 58_000, 0.29),
    ]


def test_forward_and_backward_stages_are_told_apart_where_both_ran() -> None:
    names = ("kdaprof_kda_fwd_prepare", "kdaprof_kda_bwd_prepare", "kdaprof_kda_bwd_gradients")
    stages = stages_of([KernelRow(name=n, calls=1, busy_ns=9 - i) for i, n in enumerate(names)], 100)
    assert [s.name for s in stages] == ["forward prepare", "backward prepare", "backward gradients"]


def test_aten_kernels_are_grouped_and_stay_findable_by_name() -> None:
    rows = [
        KernelRow(name=EXP, calls=3, busy_ns=30),
        KernelRow(name=MUL, calls=20, busy_ns=200),
        KernelRow(name=MUL.replace("MulFunctor", "AddFunctor"), calls=10, busy_ns=100),
        KernelRow(name=SOLVE, calls=1, busy_ns=250),
    ]
    stages = stages_of(rows, 1000)
    assert [s.busy_ns for s in stages] == [300, 250, 30]
    assert sum(s.kernels for s in stages) == 34
    assert stages[0].name == "element-wise (elementwise_kernel: MulFunctor and 1 more)"
    assert stages[1].name == "triangular solve (trsm_batch_left_lower)"
    assert stages[2].name == "exp (vectorized_elementwise_kernel: exp_kernel_cuda)"


def test_without_a_wall_there_is_no_share_and_without_kernels_no_stage() -> None:
    assert stages_of([KernelRow(name="a", calls=1, busy_ns=5)], None)[0].share is None
    assert stages_of([KernelRow(name="a", calls=1, busy_ns=5)], 0)[0].share is None
    assert stages_of([], 100) == ()


def test_short_names_are_cut() -> None:
    assert len(short_kernel("k" * 200)) == 60
    assert short_kernel("Memcpy DtoD (Device -> Device)") == "Memcpy DtoD (Device -> Device)"
