"""Findings of a trace: each with a scene that trips it, and a near miss that does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper_trace import PaperTrace

from kdaprof.analysis.trace.counterfactual import GRAPH_FIXED_HIGH_NS, GRAPH_GAP_HIGH_NS, GRAPH_GAP_LOW_NS
from kdaprof.analysis.trace.devices import TraceReport
from kdaprof.analysis.trace.findings import MAX_REGIONS
from kdaprof.analysis.trace.phases import TINY_KERNELS_MIN
from kdaprof.analysis.trace.report import analyse
from kdaprof.runs.results import Finding

GEMM, ELEMENTWISE = "ampere_sgemm_32x32_sliced1x4_nn", "void at::native::vectorized_elementwise_kernel<4>"


def report(made: PaperTrace, folder: Path) -> TraceReport:
    return analyse(made.timeline(folder))


def found(made: PaperTrace, folder: Path, which: str) -> list[Finding]:
    return [finding for finding in report(made, folder).findings if finding.id == which]


def steps(made: PaperTrace, n: int, length: int = 100_000) -> None:
    for step in range(n):
        made.annotation(f"ProfilerStep#{step}", step * length, (step + 1) * length)
        made.launch((step * length + 1_000, step * length + 2_000), (step * length + 3_000, step * length + 90_000))


def small_kernels(made: PaperTrace, n: int, *, spacing: int = 20_000, length: int = 2_000, gemms: int = 4) -> int:
    for index in range(n):
        at = index * spacing
        name = GEMM if gemms and index % gemms == 0 else ELEMENTWISE
        made.op("aten::mul", at, at + spacing // 2)
        made.launch((at + 1_000, at + 4_000), (at + 5_000, at + 5_000 + length), name=name)
    return n * spacing


def test_synchronises_in_steady_steps_name_operator_and_line(tmp_path: Path) -> None:
    made = PaperTrace()
    steps(made, 3)
    for step in range(3):
        at = step * 100_000 + 10_000
        for call in range(2):
            made.python("<built-in method item of Tensor>", at + call * 1_000 + 50, at + call * 1_000 + 950)
            made.op("aten::item", at + call * 1_000 + 100, at + call * 1_000 + 900)
            made.call("cudaStreamSynchronize", at + call * 1_000 + 200, at + call * 1_000 + 800)
        made.python("train.py(41): log_loss", at - 5_000, at + 5_000)
    (finding,) = found(made, tmp_path, "synchronises-in-steps")
    assert finding.evidence["calls"] == 4, "the first step may still warm up"
    assert "2 synchronising calls a step" in finding.text
    assert "cudaStreamSynchronize in aten::item at train.py(41): log_loss" in finding.text


def test_one_synchronise_a_step_is_allowed(tmp_path: Path) -> None:
    made = PaperTrace()
    steps(made, 3)
    for step in range(3):
        made.call("cudaStreamSynchronize", step * 100_000 + 10_000, step * 100_000 + 11_000)
    assert not found(made, tmp_path, "synchronises-in-steps")


def test_allocations_in_steady_steps_and_only_in_the_first(tmp_path: Path) -> None:
    made = PaperTrace()
    steps(made, 3)
    made.call("cudaMalloc", 92_000, 95_000)
    assert not found(made, tmp_path, "allocations-in-steady-steps")
    made.op("aten::empty", 291_000, 296_000)
    made.call("cudaMalloc", 292_000, 295_000)
    (finding,) = found(made, tmp_path, "allocations-in-steady-steps")
    assert "cudaMalloc in aten::empty" in finding.text


@pytest.mark.parametrize(
    ("kernels", "length", "trips"), [(TINY_KERNELS_MIN, 2_000, 1), (TINY_KERNELS_MIN - 1, 2_000, 0)]
)
def test_many_tiny_kernels(tmp_path: Path, kernels: int, length: int, trips: int) -> None:
    made = PaperTrace()
    end = small_kernels(made, kernels, length=length)
    made.annotation("fwd", 0, end)
    assert len(found(made, tmp_path, "many-tiny-kernels")) == trips


def test_the_tensor_path_is_known_by_its_shape_alone(tmp_path: Path) -> None:
    made = PaperTrace()
    made.annotation("attention", 0, small_kernels(made, 300))
    (finding,) = found(made, tmp_path, "tensor-path-shape")
    assert finding.evidence["region"] == "attention"


@pytest.mark.parametrize(
    ("spacing", "length", "gemms"),
    [
        pytest.param(20_000, 2_000, 0, id="no-matrix-products"),
        pytest.param(20_000, 14_900, 4, id="busy-device"),
    ],
)
def test_other_shapes_are_no_tensor_path(tmp_path: Path, spacing: int, length: int, gemms: int) -> None:
    made = PaperTrace()
    made.annotation("attention", 0, small_kernels(made, 300, spacing=spacing, length=length, gemms=gemms))
    assert not found(made, tmp_path, "tensor-path-shape")


def test_the_capture_estimate_is_busy_plus_a_gap_an_event(tmp_path: Path) -> None:
    made = PaperTrace()
    small_kernels(made, 300)
    estimate = report(made, tmp_path).devices[0].counterfactual
    assert estimate is not None
    assert estimate.busy_ns == 600_000
    assert estimate.low_ns == 600_000 + 300 * GRAPH_GAP_LOW_NS
    assert estimate.high_ns == 600_000 + 300 * GRAPH_GAP_HIGH_NS + GRAPH_FIXED_HIGH_NS
    assert estimate.blockers == ()
    (finding,) = found(made, tmp_path, "graph-capture-would-help")
    assert "derived" in finding.text


def test_each_step_is_a_replay_with_its_own_fixed_cost(tmp_path: Path) -> None:
    made = PaperTrace()
    steps(made, 4)
    for index in range(4):
        made.launch(
            (index * 100_000 + 92_000, index * 100_000 + 93_000), (index * 100_000 + 95_000, index * 100_000 + 96_000)
        )
    estimate = report(made, tmp_path).devices[0].counterfactual
    assert estimate is not None
    assert estimate.high_ns == min(estimate.now_ns, estimate.busy_ns + 8 * GRAPH_GAP_HIGH_NS + 4 * GRAPH_FIXED_HIGH_NS)


def test_regions_of_tiny_kernels_beyond_the_listed_ones_are_counted(tmp_path: Path) -> None:
    made = PaperTrace()
    for region in range(MAX_REGIONS + 2):
        begin = region * 10_000_000
        made.annotation(f"region {region}", begin, begin + 9_000_000)
        for index in range(TINY_KERNELS_MIN + region):
            at = begin + index * 20_000
            made.launch((at + 1_000, at + 4_000), (at + 5_000, at + 7_000))
    texts = [finding.text for finding in found(made, tmp_path, "many-tiny-kernels")]
    assert len(texts) == MAX_REGIONS
    assert "2 more regions" in texts[-1]
    assert not any("more regions" in text for text in texts[:-1])


def test_the_capture_estimate_keeps_waits_and_long_host_work_and_names_what_is_in_the_way(tmp_path: Path) -> None:
    made = PaperTrace()
    end = small_kernels(made, 10)
    made.call("cudaStreamSynchronize", end, end + 1_000)
    made.call("cudaMalloc", end + 2_000, end + 3_000)
    late = end + 5_000_000
    made.launch((late, late + 1_000), (late + 2_000, late + 4_000), api="cudaMemcpyAsync", cat="gpu_memcpy",
                name="Memcpy DtoH (Device -> Pinned)")  # fmt: skip
    estimate = report(made, tmp_path).devices[0].counterfactual
    assert estimate is not None
    assert estimate.low_ns > 4_900_000, "five milliseconds of Python are not launch overhead"
    assert dict(estimate.blockers) == {
        "synchronise": 1,
        "allocation by the driver": 1,
        "copy to the host": 1,
        "host work of more than 1 ms between launches": 1,
    }


def test_the_queue_tells_waiting_from_arriving(tmp_path: Path) -> None:
    made = PaperTrace()
    made.launch((0, 1_000), (2_000, 50_000))
    made.launch((3_000, 4_000), (50_500, 60_000))
    made.launch((5_000, 6_000), (60_000, 70_000))
    queue = report(made, tmp_path).devices[0].queue
    assert queue is not None
    assert queue.depth_max == 2
    assert queue.queueing_total_ns == 46_000 + 54_000
    assert queue.latency_total_ns == 1_000 + 500


def test_operators_are_ranked_by_the_idle_before_their_kernels(tmp_path: Path) -> None:
    made = PaperTrace()
    made.op("aten::quick", 0, 3_000)
    made.launch((1_000, 2_000), (2_500, 4_000))
    made.op("aten::slow", 5_000, 60_000)
    made.op("aten::inner", 6_000, 59_000)
    made.launch((50_000, 51_000), (52_000, 53_000))
    made.op("autograd::engine::evaluate_function: MulBackward0", 61_000, 70_000, tid=200)
    made.launch((62_000, 63_000), (64_000, 65_000), tid=200)
    rows = report(made, tmp_path).devices[0].operators
    assert [(row.name, row.idle_ns, row.launches) for row in rows] == [
        ("aten::slow", 48_000, 1),
        ("MulBackward0", 11_000, 1),
        ("aten::quick", 0, 1),
    ]


def test_modules_come_from_python_frames(tmp_path: Path) -> None:
    made = PaperTrace()
    made.python("nn.Module: Block_0", 0, 90_000)
    made.python("nn.Module: Linear_0", 1_000, 40_000)
    made.python("nn.Module: Linear_1", 50_000, 80_000)
    for at in (2_000, 60_000, 85_000):
        made.launch((at, at + 500), (at + 1_000, at + 2_000))
    rows = {row.name: row.device_events for row in report(made, tmp_path).devices[0].modules}
    assert rows == {"Linear_0": 1, "Linear_1": 1, "Block_0": 1}


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("kdaprof_kda_fwd_recur", "kdaprof"),
        ("chunk_kda_fwd_kernel_intra", "fla"),
        ("recompute_w_u_fwd_kernel", "fla"),
        ("flash_kda_fwd_sm90", "flashkda"),
        ("triton_poi_fused_add_cos_sin_0", "inductor"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn", "blas"),
        ("void at::native::elementwise_kernel<128, 2>", "aten"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "nccl"),
        ("my_own_kernel", "triton-or-own"),
    ],
)
def test_families_of_kernels(tmp_path: Path, name: str, family: str) -> None:
    made = PaperTrace()
    made.launch((0, 1_000), (2_000, 3_000), name=name)
    assert [row.family for row in report(made, tmp_path).devices[0].paths] == [family]


REPLAYS_MS = (
    ("tensor fwd", 1.17, 287, 1.33),
    ("tensor-rows fwd", 1.22, 345, 1.42),
    ("compiled fwd", 0.95, 236, 1.26),
    ("FLA fwd", 0.187, 9, 0.215),
    ("tensor fwdbwd", 5.98, 1379, 6.80),
    ("tensor-rows fwdbwd", 6.24, 1665, 7.28),
    ("compiled fwdbwd", 2.81, 607, 3.41),
    ("FLA fwdbwd", 0.802, 19, 0.848),
)
"""What an H200 measured: path, device busy, launches, wall of a graph replay."""


@pytest.mark.parametrize(("name", "busy_ms", "events", "replay_ms"), REPLAYS_MS)
def test_the_estimate_s_range_holds_the_measured_replays(
    name: str, busy_ms: float, events: int, replay_ms: float
) -> None:
    low = busy_ms + events * GRAPH_GAP_LOW_NS / 1e6
    high = busy_ms + events * GRAPH_GAP_HIGH_NS / 1e6 + GRAPH_FIXED_HIGH_NS / 1e6
    assert low <= replay_ms <= high, name
