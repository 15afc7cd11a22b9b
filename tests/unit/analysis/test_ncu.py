"""Counts by phase and kernel, and beside them the cost model's bytes."""

from __future__ import annotations

import pytest

from kdaprof.analysis.ncu import NO_PHASE, analyse, phase_of
from kdaprof.kda.cost import OpSize
from kdaprof.kda.traffic import work
from kdaprof.timeline.ncu_csv import NcuKernel, NvtxRange

SIZE = OpSize(B=10, T=512, H=12, K=64, V=64)


def kernel(name: str, *ranges: tuple[str, str], process: str = "1", **figures: float | None) -> NcuKernel:
    values: dict[str, float | None] = {
        "duration_ns": 1000.0,
        "dram_read_bytes": 100.0,
        "dram_write_bytes": 50.0,
        "dram_share": 0.5,
        "sm_share": 0.25,
        "occupancy": 0.1,
        "occupancy_limit": 0.5,
        "registers": 64.0,
        "local_load_bytes": 0.0,
        "local_store_bytes": 0.0,
    }
    return NcuKernel(
        index=0, name=name, process=process, device="0", capability="9.0", stream="7", grid="1", block="64",
        ranges=tuple(NvtxRange(id, "kdaprof", text) for id, text in ranges), **(values | figures),
    )  # fmt: skip


def test_bytes_a_call_stand_beside_the_model_s() -> None:
    models = {phase: work("fused", phase, SIZE, "float32") for phase in ("fwd", "bwd")}
    found = analyse(
        [
            kernel("prepare", ("1", "fwd"), dram_read_bytes=60e6, dram_write_bytes=70e6),
            kernel("recur", ("1", "fwd"), dram_read_bytes=70e6, dram_write_bytes=15e6),
            kernel("prepare", ("2", "fwd"), dram_read_bytes=60e6, dram_write_bytes=70e6),
            kernel("recur", ("2", "fwd"), dram_read_bytes=70e6, dram_write_bytes=15e6),
            kernel("pairs", ("3", "bwd"), dram_read_bytes=200e6, dram_write_bytes=100e6),
        ],
        models,
    )
    forward, backward = found.phases
    assert (forward.phase, forward.calls, forward.launches, forward.duration_ns) == ("fwd", 2, 4, 2000)
    assert (forward.read_bytes, forward.write_bytes, forward.dram_bytes) == (130e6, 85e6, 215e6)
    assert forward.path_bytes == models["fwd"].bytes_path
    assert forward.of_path == pytest.approx(215e6 / models["fwd"].bytes_path)
    assert forward.of_compulsory == pytest.approx(215e6 / models["fwd"].bytes_compulsory)
    assert (backward.phase, backward.calls, backward.model_missing) == ("bwd", 1, None)
    assert [(row.phase, row.name, row.launches) for row in found.kernels] == [
        ("fwd", "prepare", 2),
        ("fwd", "recur", 2),
        ("bwd", "pairs", 1),
    ]
    assert found.kernels[0].dram_bytes_per_s == pytest.approx(260e6 / 2000e-9)


def test_without_a_model_the_reason_stands() -> None:
    tensor = analyse([kernel("trsm", ("1", "bwd"))], {"bwd": work("tensor", "bwd", SIZE, "float32")}).phases[0]
    assert tensor.path_bytes is None
    assert tensor.compulsory_bytes is not None
    assert "no listing" in (tensor.model_missing or "")
    step = analyse([kernel("gemm", ("1", "step"))], {}).phases[0]
    assert step.model_missing == "the cost model has no phase 'step'"
    assert (
        analyse([kernel("x")], {}, model_missing="no --path was given").phases[0].model_missing == "no --path was given"
    )


def test_a_missing_figure_makes_the_sum_missing() -> None:
    found = analyse([kernel("a", ("1", "fwd")), kernel("a", ("1", "fwd"), dram_read_bytes=None)], {})
    assert found.phases[0].read_bytes is None
    assert found.phases[0].dram_bytes is None
    assert found.kernels[0].dram_bytes_per_s is None
    assert found.phases[0].write_bytes == 100


def test_shares_are_weighted_by_time_and_registers_are_the_most() -> None:
    row = analyse(
        [
            kernel("a", duration_ns=3000.0, dram_share=0.8, registers=32.0, occupancy_limit=1.0),
            kernel("a", duration_ns=1000.0, dram_share=0.4, registers=255.0, occupancy_limit=0.25),
        ],
        {},
    ).kernels[0]
    assert row.dram_share == pytest.approx(0.7)
    assert (row.registers, row.occupancy_limit) == (255, 0.25)
    assert row.spills is False


@pytest.mark.parametrize(
    ("load", "store", "spills"), [(0.0, 0.0, False), (0.0, 8.0, True), (None, None, None), (None, 8.0, True)]
)
def test_spills_are_seen_in_local_memory(load: float | None, store: float | None, spills: bool | None) -> None:
    assert analyse([kernel("a", local_load_bytes=load, local_store_bytes=store)], {}).kernels[0].spills is spills


def test_the_innermost_range_of_ours_is_the_phase() -> None:
    assert phase_of(kernel("a", ("1", "run-1"), ("2", "fwdbwd"), ("9", "bwd"))) == "bwd"
    assert phase_of(kernel("a")) == NO_PHASE
    foreign = NvtxRange("4", "user", "step")
    inside = kernel("a", ("1", "fwd"))
    both = NcuKernel(**{f: getattr(inside, f) for f in NcuKernel.__slots__} | {"ranges": (*inside.ranges, foreign)})
    assert phase_of(both) == "fwd"


def test_ranges_of_two_processes_are_two_calls() -> None:
    found = analyse([kernel("a", ("1", "fwd"), process="1"), kernel("a", ("1", "fwd"), process="2")], {})
    assert found.phases[0].calls == 2


def test_many_kernels_come_longest_first() -> None:
    many = [kernel(f"k{i}", ("1", "fwd"), duration_ns=float(i)) for i in range(12)]
    assert [row.name for row in analyse(many, {}).kernels][:2] == ["k11", "k10"]
