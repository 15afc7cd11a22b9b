from __future__ import annotations

import subprocess
import sys

import pytest

from kdaprof.errors import UsageError
from kdaprof.kda.cost import (
    OpSize,
    backward_products,
    compulsory,
    field_flops_per_token_head,
    flops,
    forward_products,
    inverse_flops,
    moved_bytes,
    serial_chain,
)
from kdaprof.kda.traffic import field_report_bytes, field_report_tensors, path_traffic, rate_name, work
from kdaprof.runs.cells import make_shape

PRODUCTION = OpSize(10, 512, 12, 64, 64, 16)
INPUT = 10 * 512 * 12 * 64 * 4
STATE = 10 * 12 * 64 * 64 * 4


def test_size_comes_from_a_cells_shape() -> None:
    assert OpSize.of(make_shape("kda", (10, 512, 12, 64, 64, 16))) == PRODUCTION
    assert (PRODUCTION.chunks, PRODUCTION.tokens) == (3840, 5120)


def test_forward_flops_at_the_production_shape() -> None:
    products = {p.name: p.flops for p in forward_products(PRODUCTION)}
    assert sorted(products.values()) == [32_768] * 5 + [131_072] * 3
    assert sum(products.values()) + inverse_flops(16) == 561_152
    assert flops("fwd", PRODUCTION) == 2_154_823_680
    assert flops("fwd", PRODUCTION) / (10 * 512 * 12) == 35_072
    assert pytest.approx(0.70, abs=0.001) == 3 * 131_072 / 561_152


def test_forward_flops_follow_the_closed_form_for_any_k_and_v() -> None:
    size = OpSize(2, 96, 3, 48, 80, 16)
    per_token = 2 * 16 * (3 * 48 + 2 * 80) + 6 * 48 * 80 + 16**3 // 16
    assert flops("fwd", size) == 2 * 96 * 3 * per_token


def test_a_tail_counts_as_a_whole_chunk_and_no_batch_as_nothing() -> None:
    assert flops("fwd", OpSize(1, 17, 1, 16, 16)) == 2 * flops("fwd", OpSize(1, 16, 1, 16, 16))
    assert flops("fwdbwd", OpSize(0, 17, 1, 16, 16)) == 0


def test_backward_flops_by_the_listed_products() -> None:
    K, V, C = 64, 32, 16
    products = [p.flops for p in backward_products(OpSize(1, C, 1, K, V, C))]
    assert products.count(2 * C * K * V) == 6
    assert products.count(2 * C * C * V) == 4
    assert products.count(2 * C * C * K) == 6
    assert products.count(2 * C**3) == 2
    assert len(products) == 18
    assert flops("bwd", PRODUCTION) == 3840 * (6 * 131_072 + 10 * 32_768 + 4 * 4_096) == 4_341_104_640
    assert flops("fwdbwd", PRODUCTION) == flops("fwd", PRODUCTION) + flops("bwd", PRODUCTION)


@pytest.mark.parametrize(
    ("B", "T", "H", "D", "gflop"),
    [
        (1, 8192, 96, 128, 135.3),
        (2, 16384, 16, 128, 90.2),
        (4, 4096, 64, 128, 180.4),
        (8, 2048, 32, 256, 279.2),
        (4, 2048, 16, 128, 22.5),
        (8, 1024, 8, 64, 4.3),
    ],
)
def test_the_field_reports_own_table(B: int, T: int, H: int, D: int, gflop: float) -> None:
    assert round(B * T * H * field_flops_per_token_head(64, D) / 1e9, 1) == gflop


def test_the_field_reports_figure_is_172032_not_131072() -> None:
    assert field_flops_per_token_head(64, 128) == 172_032


def test_compulsory_forward_bytes_with_each_tensor_listed() -> None:
    listed = {t.name: t for t in compulsory("fwd", PRODUCTION, "float32")}
    assert list(listed) == ["q", "k", "v", "g", "beta", "o"]
    assert listed["g"].shape == (10, 512, 12, 64)
    assert listed["beta"].bytes == 245_760
    assert moved_bytes(tuple(listed.values())) == 78_888_960
    assert moved_bytes(compulsory("fwd", PRODUCTION, "float32", final_state=True)) == 80_855_040
    both = compulsory("fwd", PRODUCTION, "float32", initial_state=True, final_state=True)
    assert moved_bytes(both) == 78_888_960 + 2 * STATE


def test_half_precision_halves_all_but_the_state() -> None:
    assert moved_bytes(compulsory("fwd", PRODUCTION, "bfloat16", final_state=True)) == 78_888_960 // 2 + STATE
    assert moved_bytes(compulsory("fwd", PRODUCTION, "float64", final_state=True)) == 2 * 80_855_040


def test_compulsory_backward_bytes() -> None:
    listed = compulsory("bwd", PRODUCTION, "float32")
    assert [t.name for t in listed if t.reads] == ["q", "k", "v", "g", "beta", "do"]
    assert [t.name for t in listed if t.writes] == ["dq", "dk", "dv", "dg", "dbeta"]
    assert moved_bytes(listed) == 9 * INPUT + 2 * 245_760
    with_states = compulsory("bwd", PRODUCTION, "float32", initial_state=True, final_state=True)
    assert moved_bytes(with_states) - moved_bytes(listed) == 3 * STATE
    assert moved_bytes(compulsory("fwdbwd", PRODUCTION, "float32")) == 78_888_960 + moved_bytes(listed)


def test_the_field_reports_traffic_adds_up_from_its_listed_tensors() -> None:
    listed = field_report_tensors(PRODUCTION)
    assert round(moved_bytes(listed) / 1e6) == 346
    assert round(field_report_bytes(PRODUCTION) / 1e6) == 692
    scratch = [t for t in listed if t.shape == (3840, 16, 64)]
    assert len(scratch) == 10
    assert round(moved_bytes(tuple(scratch)) / 1e6) == 157
    assert round(moved_bytes(tuple(t for t in scratch if not t.name.startswith("("))) / 1e6, 1) == 141.6
    assert flops("fwd", PRODUCTION) / field_report_bytes(PRODUCTION) == pytest.approx(3.1, abs=0.05)
    assert field_report_bytes(PRODUCTION) / 1792e9 * 1e3 == pytest.approx(0.386, abs=0.0005)


def test_intensity_of_the_compulsory_bytes() -> None:
    with_state = moved_bytes(compulsory("fwd", PRODUCTION, "float32", final_state=True))
    assert flops("fwd", PRODUCTION) / with_state == pytest.approx(26.7, abs=0.05)


def test_fused_traffic_is_the_compulsory_bytes_and_what_the_kernels_hand_on() -> None:
    key, square, chunk = 16 * 64, 16 * 16, 3840 * 4
    # Forward: q, k and beta once more; exp G, k exp(G_C − G), P and A both ways; V' written.
    forward = path_traffic("fused", "fwd", PRODUCTION, "float32").bytes
    assert forward == 78_888_960 + 2 * INPUT + 245_760 + chunk * (5 * key + 4 * square) == 204_963_840
    # Backward: q and k twice more, beta twice, dO once. exp G, k exp(G_C − G) and V' read twice; X and three sums both
    # ways; P and A read, dP and dL both ways; S and dS of every second chunk; two small sums.
    listed = moved_bytes(compulsory("bwd", PRODUCTION, "float32"))
    again = 5 * INPUT + 2 * 245_760
    handed = chunk * (6 * key + 8 * key + 6 * square + 2 * 64 * 64 + 2 * 64 + 2 * 16)
    assert path_traffic("fused", "bwd", PRODUCTION, "float32").bytes == listed + again + handed
    assert path_traffic("fused", "fwdbwd", PRODUCTION, "float32").bytes == forward + listed + again + handed


def states_kept(size: OpSize, dtype: str) -> int:
    tensors = path_traffic("fused", "bwd", size, dtype).tensors
    assert tensors is not None
    return next(t for t in tensors if t.name == "S").shape[0]


@pytest.mark.parametrize(
    ("size", "dtype", "kept"),
    [
        (PRODUCTION, "float32", 1920),
        (PRODUCTION, "bfloat16", 3840),
        (OpSize(1, 64, 1, 48, 48), "float32", 4),
        (OpSize(1, 48, 1, 64, 64), "float32", 3),
        (OpSize(1, 64, 1, 128, 128), "float32", 4),
    ],
)
def test_every_second_state_is_kept_only_where_the_kernels_do(size: OpSize, dtype: str, kept: int) -> None:
    assert states_kept(size, dtype) == kept


@pytest.mark.parametrize("size", [PRODUCTION, OpSize(2, 48, 3, 48, 96)], ids=["production", "K ≠ V"])
def test_fused_traffic_lists_the_records_that_the_kernels_keep(size: OpSize) -> None:
    """A kernel that keeps something else must be listed anew in kda/traffic.py."""
    pytest.importorskip("torch")
    from kdaprof.kda.fused.sizes import record_elements

    tensors = path_traffic("fused", "fwd", size, "float32").tensors or ()
    written = {t.name: t.bytes // 4 // size.chunks for t in tensors if t.writes and t.shape[0] == size.chunks}
    assert sum(written.values()) == record_elements(size.K, size.V)


def test_the_tensor_path_moves_many_times_what_it_must() -> None:
    tensor = path_traffic("tensor", "fwd", PRODUCTION, "float32").bytes
    rows = path_traffic("tensor-rows", "fwd", PRODUCTION, "float32").bytes
    assert tensor is not None
    assert rows is not None
    assert 10 * 78_888_960 < tensor < rows


@pytest.mark.parametrize(("path", "phase"), [("tensor", "bwd"), ("compiled", "fwd"), ("reference", "fwd")])
def test_what_cannot_be_listed_says_why(path: str, phase: str) -> None:
    found = path_traffic(path, phase, PRODUCTION, "float32")
    assert found.bytes is None
    assert found.why
    assert work(path, phase, PRODUCTION, "float32").bytes_path is None


@pytest.mark.parametrize(
    ("path", "dtype", "precision", "rate"),
    [
        ("fused", "float32", "tf32x3", "matmul_tf32x3"),
        ("fused", "float32", "tf32", "matmul_tf32"),
        ("fused", "float32", "ieee", "matmul_float32"),
        ("fused", "bfloat16", "tf32x3", "matmul_tf32"),
        ("tensor", "bfloat16", "tf32x3", "matmul_float32"),
        ("tensor", "float64", "tf32x3", "matmul_float64"),
    ],
)
def test_the_rate_is_that_of_the_instruction_really_used(path: str, dtype: str, precision: str, rate: str) -> None:
    assert rate_name(path, dtype, precision) == rate


def test_work_of_a_cell() -> None:
    found = work("fused", "fwd", PRODUCTION, "float32")
    assert (found.flops, found.bytes_compulsory, found.rate) == (2_154_823_680, 78_888_960, "matmul_tf32x3")


def test_serial_chain() -> None:
    chain = serial_chain(PRODUCTION)
    assert (chain.programs, chain.steps) == (120, 32)
    assert serial_chain(PRODUCTION, v_block=16).programs == 480


def test_an_unknown_phase_is_one_clear_line() -> None:
    for ask in (lambda: flops("opt", PRODUCTION), lambda: compulsory("opt", PRODUCTION, "float32")):
        with pytest.raises(UsageError, match="'opt'"):
            ask()


def test_cost_is_plain_data_without_torch() -> None:
    code = (
        "import sys, importlib.util as u; s = u.spec_from_file_location('cost', sys.argv[1]); m = u.module_from_spec(s)"
    )
    code += "; sys.modules['cost'] = m; s.loader.exec_module(m); assert 'torch' not in sys.modules"
    import kdaprof.kda.cost as module

    subprocess.run([sys.executable, "-c", code, module.__file__], check=True)
