from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import scenes
from scenes import MS, SECOND, US, Kernel, Scene

from kdaprof.analysis.celldata import CellData, gather
from kdaprof.analysis.facts import cross_facts, own_facts
from kdaprof.runs.facts import EAGER_FACTS, Fact, facts_of
from kdaprof.runs.record import Check, TensorError
from kdaprof.runs.util import UtilReading


def facts(*made: Scene, **changes: Any) -> dict[str, Fact]:
    """The figures of the first scene, those that need its graph sibling included."""
    raw = scenes.raw(*made, **changes)
    data = [gather(raw, cell) for cell in raw.record.cells]
    first = data[0]
    graph = next((d for d in data[1:] if d.cell.key == first.cell.key.sibling(mode="graph")), None)
    return cross_facts(first, own_facts(first), (graph.cell, own_facts(graph)) if graph else None)


def graph_scene(wall_ns: int = 140 * US, **seen: Any) -> Scene:
    kernels = [
        Kernel(name, call_ns=10 * US, at_ns=(20 + 61 * i) * US, busy_ns=60 * US, graph=True, api="cudaGraphLaunch")
        for i, name in enumerate(scenes.FUSED_KERNELS)
    ]
    line = scenes.timeline(kernels, wall_ns=160 * US)
    return scenes.scene(mode="graph", wall_ns=wall_ns, timelines={"profiled-cuda": line}, **seen)


def test_every_figure_of_the_contract_is_there_in_its_unit_and_order() -> None:
    for one in (scenes.scene(), graph_scene(), scenes.failed_scene(), scenes.cpu_scene()):
        found = facts(one)
        units = facts_of(one.cell.key.mode)
        assert list(found) == list(units)
        assert {name: fact.unit for name, fact in found.items()} == units
        for fact in found.values():
            assert (fact.value is None) == (fact.missing is not None)
            if fact.missing:
                assert fact.detail


def test_wall_and_host_come_from_the_unprofiled_samples_of_the_rounds_alone() -> None:
    found = facts(scenes.scene(wall_ns=200 * US, host_ns=60 * US, profiled_wall_ns=900 * US))
    wall = found["wall_ns"]
    assert (wall.value, wall.n, wall.unit, wall.provenance) == (200 * US, 100, "ns", "measured")
    assert found["host_ns"].value == 60 * US
    assert wall.max is not None
    assert wall.max < 202 * US  # neither the cold first step of 4 ms nor a profiled wall
    assert wall.ci95 is not None
    assert wall.ci95[0] < 200 * US < wall.ci95[1]


def test_samples_before_the_steady_segment_do_not_count() -> None:
    rounds = [[9 * MS] * 20, [1 * MS] * 20, [1 * MS] * 20, [1 * MS] * 20]
    one = scenes.cpu_scene()
    samples = scenes.series(one.id, "unprofiled", rounds)
    found = facts(replace(one, samples=samples), gpu=False)
    assert (found["wall_ns"].value, found["wall_ns"].n, found["wall_ns"].max) == (1 * MS, 60, 1 * MS)


def test_a_constant_wall_has_an_interval_of_zero_width() -> None:
    one = scenes.cpu_scene()
    found = facts(replace(one, samples=scenes.series(one.id, "unprofiled", [[MS] * 4] * 3)), gpu=False)
    assert found["wall_ns"].ci95 == (MS, MS)
    assert found["tokens_per_s"].value == 5120 * SECOND // MS


def test_one_round_has_a_median_and_says_why_it_has_no_interval() -> None:
    one = scenes.cpu_scene()
    found = facts(replace(one, samples=scenes.series(one.id, "unprofiled", [[MS] * 9])), gpu=False)
    assert found["wall_ns"].value == MS
    assert found["wall_ns"].ci95 is None
    assert "one round" in (found["wall_ns"].detail or "")


def test_a_pipelined_figure_is_a_calls_part_of_its_burst() -> None:
    assert facts(scenes.scene(wall_ns=200 * US))["pipelined_ns"].value == 100 * US


def test_busy_is_the_union_over_streams_and_each_repeat_is_a_round() -> None:
    def repeat(extra: int) -> list[Kernel]:
        return [
            Kernel("a", call_ns=10 * US, at_ns=20 * US, busy_ns=100 * US + extra),
            Kernel("b", call_ns=15 * US, at_ns=70 * US, busy_ns=100 * US, stream=13),  # half beside a
        ]

    line = scenes.timeline([repeat(0), repeat(2 * US), repeat(4 * US)], wall_ns=250 * US, repeats=3)
    busy = facts(scenes.scene(timelines={"profiled-cuda": line}))["gpu_busy_ns"]
    assert (busy.value, busy.n, busy.min, busy.max) == (150 * US, 3, 150 * US, 150 * US)
    line = scenes.timeline([[Kernel("a", 10 * US, 20 * US, b * US)] for b in (90, 100, 110)], wall_ns=MS, repeats=3)
    busy = facts(scenes.scene(timelines={"profiled-cuda": line}))["gpu_busy_ns"]
    assert (busy.value, busy.min, busy.max) == (100 * US, 90 * US, 110 * US)
    assert busy.ci95 is not None
    assert busy.ci95[0] < 90 * US


def test_idle_is_wall_minus_busy_with_both_intervals_and_both_sources() -> None:
    one = scenes.scene(wall_ns=200 * US)
    found = facts(one)
    idle, wall = found["idle_ns"], found["wall_ns"]
    assert (idle.value, idle.provenance, idle.n) == (72 * US, "derived", 5)
    assert idle.sources == (f"{scenes.RUN_ID}/{one.id}/wall_ns", f"{scenes.RUN_ID}/{one.id}/gpu_busy_ns")
    assert wall.ci95 is not None
    assert idle.ci95 == pytest.approx((wall.ci95[0] - 128 * US, wall.ci95[1] - 128 * US))  # busy is constant here
    share = found["host_bound"]
    assert (share.value, share.unit) == (pytest.approx(0.36), "fraction")
    assert share.ci95 == pytest.approx((1 - 128 * US / wall.ci95[0], 1 - 128 * US / wall.ci95[1]))


def test_launches_count_every_kind_and_a_graphs_launch_once() -> None:
    kernels = [
        Kernel("a", 10 * US, 40 * US, 10 * US),
        Kernel("b", 20 * US, 60 * US, 10 * US, api="cudaLaunchKernel"),
        Kernel("Memcpy DtoD (Device -> Device)", 30 * US, 80 * US, 5 * US, scenes.Kind.MEMCPY, api="cudaMemcpyAsync"),
        Kernel("Memset (Device)", 36 * US, 90 * US, 5 * US, scenes.Kind.MEMSET, api="cudaMemsetAsync"),
    ]
    nodes = [Kernel(f"n{i}", 50 * US, (100 + i) * US, 900, graph=True, api="cudaGraphLaunch") for i in range(5)]
    line = scenes.timeline([*kernels, *nodes], wall_ns=250 * US)
    assert facts(scenes.scene(timelines={"profiled-cuda": line}))["launches"].value == 5


def test_allocator_figures() -> None:
    found = facts(scenes.scene())
    assert [found[n].value for n in ("allocs", "alloc_bytes", "peak_bytes")] == [3, 90 << 20, 88 << 20]
    assert found["allocs"].ci95 == (3, 3)


def test_reserved_growth_is_last_minus_first_reading_of_the_rounds() -> None:
    one = scenes.scene()
    assert facts(one)["reserved_growth_bytes"].value == 0
    last = max(i for i, s in enumerate(one.samples) if s.repeat == "unprofiled")
    grown = tuple(replace(s, reserved_bytes=600 << 20) if i == last else s for i, s in enumerate(one.samples))
    assert facts(replace(one, samples=grown))["reserved_growth_bytes"].value == 88 << 20
    # What grew while the call warmed up did not grow during the samples.
    first = tuple(replace(s, reserved_bytes=1 << 20) if s.round == -1 else s for s in one.samples)
    assert facts(replace(one, samples=first))["reserved_growth_bytes"].value == 0
    once = tuple(replace(s, reserved_bytes=None) if i != last else s for i, s in enumerate(one.samples))
    assert facts(replace(one, samples=once))["reserved_growth_bytes"].missing == "not-applicable"


def test_inflation_is_profiled_wall_over_plain_wall() -> None:
    found = facts(scenes.scene(wall_ns=200 * US, profiled_wall_ns=250 * US))
    assert found["inflation"].value == pytest.approx(1.25)
    assert found["inflation"].ci95 is not None


@pytest.mark.parametrize(("after", "removed"), [(128, 1.0), (140, 60 / 72), (200, 0.0)])
def test_graph_removed_is_the_share_of_the_launch_overhead(after: int, removed: float) -> None:
    eager, graph = scenes.scene(wall_ns=200 * US), graph_scene(after * US)
    found = facts(eager, graph)["graph_removed"]
    assert found.value == pytest.approx(removed)
    assert found.sources[-1] == f"{scenes.RUN_ID}/{graph.id}/wall_ns"
    assert found.ci95 is not None


def test_graph_removed_is_missing_where_there_is_no_overhead_to_remove() -> None:
    found = facts(scenes.scene(wall_ns=128 * US), graph_scene())["graph_removed"]
    assert found.missing == "not-applicable"
    assert "within noise of 0" in (found.detail or "")


def test_graph_removed_says_why_the_graph_is_missing() -> None:
    assert facts(scenes.scene())["graph_removed"].missing == "not-applicable"
    failed = facts(scenes.scene(), scenes.failed_scene(mode="graph"))["graph_removed"]
    assert failed.missing == "failed"
    assert "operation not permitted when stream is capturing" in (failed.detail or "")
    gone = facts(scenes.scene(), scenes.failed_scene(mode="graph", status="unavailable"))["graph_removed"]
    assert gone.missing == "not-supported"


def test_facts_of_a_graph() -> None:
    copies = scenes.series(scenes.key(mode="graph").id, "input-copy", [[30 * US, 31 * US, 32 * US]])
    one = graph_scene()
    found = facts(replace(one, samples=(*one.samples, *copies)))
    assert {name: fact.value for name, fact in found.items()} == {
        "wall_ns": 140 * US,
        "gpu_busy_ns": 120 * US,
        "pool_bytes": 90 << 20,
        "input_copy_ns": 31 * US,
        "error_l2": 0.0,
    }


def test_floor_and_its_share_of_busy() -> None:
    found = facts(scenes.scene())
    floor = found["floor_ns"]
    assert floor.value == round(2_154_823_680 / (332e12 / 3) * 1e9) == 19_471
    assert (floor.provenance, floor.ci95) == ("derived", None)
    assert [source.rsplit("/", 1)[-1] for source in floor.sources] == ["matmul_tf32x3", "copy"]
    assert "compute" in (floor.detail or "")
    assert found["floor_share"].value == pytest.approx(19_471 / 128_000)
    assert found["floor_share"].ci95 is not None
    assert facts(scenes.scene(), ceilings=())["floor_ns"].missing == "not-supported"
    assert facts(scenes.scene(work=None))["floor_ns"].missing == "not-applicable"


def test_a_declared_ceiling_makes_a_declared_floor() -> None:
    declared = tuple(replace(c, provenance="declared") for c in scenes.CEILINGS)
    assert facts(scenes.scene(), ceilings=declared)["floor_ns"].provenance == "declared"


def reading(
    at_s: float, value: float | None, *, stale: bool = False, uuid: str | None = scenes.GPU_UUID
) -> UtilReading:
    missing = "not supported by this card" if value is None else None
    return UtilReading(t_ns=int(at_s * SECOND), uuid=uuid, field="util", value=value, stale=stale, missing=missing)


def test_utilisation_is_read_in_the_cells_own_loop_fresh_and_settled() -> None:
    one = scenes.scene()  # its loop runs from 6 s to 11 s
    inside = [reading(7.5, 0.10), reading(8, 0.20), reading(9, 0.04), reading(9.1, 0.04, stale=True), reading(10, 0.30)]
    outside = [reading(5, 1.0), reading(6.5, 1.0), reading(11.5, 1.0), reading(8, 1.0, uuid="GPU-other")]
    power = replace(reading(8, 700.0), field="power_w")
    found = facts(replace(one, util=(*inside, *outside, power)))
    # They stand for 0.5, 1 and 1 s, and the last one for the usual spacing of 0.7 s.
    assert found["util_mean"].value == pytest.approx((0.10 * 0.5 + 0.20 + 0.04 + 0.30 * 0.7) / 3.2)
    assert found["util_idle_share"].value == pytest.approx(1 / 3.2)
    assert (found["util_mean"].n, found["util_idle_share"].n) == (4, 4)


def test_utilisation_of_a_loop_that_idles_half_of_its_time_is_half_whatever_repeats() -> None:
    # Polled at 20 Hz: a value that changes is a reading at every other look, one that stays at every fourth.
    busy = [reading(7.1 + look / 20, 0.8 + look // 2 % 2 / 10, stale=look % 2 > 0) for look in range(36)]
    idle = [reading(8.9 + look / 20, 0.0, stale=look % 4 > 0) for look in range(36)]
    found = facts(replace(scenes.scene(), util=(*busy, *idle)))
    assert found["util_mean"].value == pytest.approx(0.425)
    assert found["util_idle_share"].value == pytest.approx(0.5)
    assert (found["util_mean"].n, found["util_mean"].min, found["util_mean"].max) == (27, 0.0, 0.9)
    assert found["util_idle_share"].detail == "9 of 27 readings at ≤ 5 %, by the time that each stands for"


def test_utilisation_that_the_card_does_not_give_is_missing_with_its_reason() -> None:
    found = facts(replace(scenes.scene(), util=(reading(8, None),)))
    assert (found["util_mean"].missing, found["util_mean"].detail) == ("not-supported", "not supported by this card")
    assert facts(scenes.scene())["util_mean"].missing == "not-applicable"


def test_errors_are_those_of_the_worst_tensor() -> None:
    tensors = (
        TensorError(name="o", l2=3e-7, max_abs=9e-6, finite=True),
        TensorError(name="dg", l2=8e-6, max_abs=2e-6, finite=True),
    )
    check = Check(against="float64 recurrence", tolerance_l2=1e-5, tensors=tensors, passed=True)
    found = facts(scenes.scene(check=check))
    assert (found["error_l2"].value, found["error_max"].value) == (8e-6, 9e-6)
    assert found["error_l2"].detail == "dg against float64 recurrence"
    wild = replace(check, tensors=(tensors[0], replace(tensors[1], l2=None, max_abs=None, finite=False)), passed=False)
    found = facts(scenes.scene(check=wild))
    assert (found["error_l2"].missing, found["error_max"].missing) == ("failed", "failed")
    assert "dg not finite" in (found["error_l2"].detail or "")


def test_cold_start_takes_each_process_for_a_round() -> None:
    one = scenes.scene()
    assert facts(one)["cold_ns"].missing == "not-applicable"
    cold = scenes.series(one.id, "cold", [[3 * SECOND, 4 * SECOND, 5 * SECOND]])
    found = facts(replace(one, samples=(*one.samples, *cold)))["cold_ns"]
    assert (found.value, found.n) == (4 * SECOND, 3)
    assert found.ci95 is not None


def test_without_a_device_each_gpu_figure_is_missing_with_the_machines_reason() -> None:
    words = dict.fromkeys(("gpu_busy_ns", "launches"), "no NVIDIA GPU on this machine")
    found = facts(scenes.cpu_scene(missing=words), gpu=False)
    missing = {name for name, fact in found.items() if fact.missing == "no-device"}
    present = {"wall_ns", "host_ns", "tokens_per_s", "error_l2", "error_max"}
    assert missing == set(EAGER_FACTS) - present - {"pipelined_ns", "cold_ns"}
    assert {found[name].detail for name in missing} == {"no NVIDIA GPU on this machine"}
    assert all(found[name].value is not None for name in present)


def test_a_recording_without_a_device_event_is_missing_never_zero() -> None:
    words = {"gpu_busy_ns": "another profiler may hold CUPTI"}
    line = scenes.timeline((), wall_ns=250 * US)
    found = facts(scenes.scene(timelines={"profiled-cuda": line}, missing=words))
    assert (found["gpu_busy_ns"].missing, found["gpu_busy_ns"].detail) == ("not-supported", words["gpu_busy_ns"])
    assert found["launches"].value is None
    assert found["idle_ns"].detail == f"needs gpu_busy_ns: {words['gpu_busy_ns']}"
    assert found["idle_sync_ns"].missing == "not-supported"


@pytest.mark.parametrize(
    ("status", "missing"), [("failed", "failed"), ("unavailable", "not-supported"), ("skipped", "not-applicable")]
)
def test_a_cell_that_did_not_run_has_no_figures_and_says_why(status: str, missing: str) -> None:
    found = facts(scenes.failed_scene(status=status))
    assert {fact.missing for fact in found.values()} == {missing}
    typed = "RuntimeError: " if status == "failed" else ""
    assert all(f"the cell is {status}: {typed}CUDA error" in (fact.detail or "") for fact in found.values())


def test_a_graph_that_the_machine_cannot_have_is_missing_for_want_of_a_device() -> None:
    found = facts(scenes.failed_scene(mode="graph", status="unavailable", device="cpu"), gpu=False)
    assert {fact.missing for fact in found.values()} == {"no-device"}


def test_phase_bwd_has_no_bursts() -> None:
    one = scenes.scene(phase="bwd")
    found = facts(replace(one, samples=tuple(s for s in one.samples if s.repeat != "pipelined")))
    assert "each needs a forward" in (found["pipelined_ns"].detail or "")


# ---------------------------------------------------------------- idle classes


def classes(found: dict[str, Fact]) -> dict[str, Any]:
    names = [n for n in found if n.startswith("idle_") and n not in ("idle_ns", "idle_head_ns")]
    return {name: found[name].value for name in names}


def test_idle_classes_are_shares_of_the_profiled_idle_scaled_to_the_unprofiled_one() -> None:
    # One repeat: 40 us before the launch, 5 in it, 15 to arrive, 70 busy, 1 between, 58 busy, 61 of drain.
    found = facts(scenes.scene(wall_ns=200 * US, profiled_wall_ns=250 * US))
    scale = 72 / 122
    assert found["idle_head_ns"].value == round(60 * US * scale)
    assert found["idle_drain_ns"].value == round(61 * US * scale)
    assert found["idle_host_other_ns"].value == round(40 * US * scale)
    assert found["idle_launch_call_ns"].value == round(5 * US * scale)
    assert sum(classes(found).values()) == 72 * US  # to the nanosecond
    fact = found["idle_drain_ns"]
    assert (fact.provenance, fact.n, fact.sources[0].rsplit("/", 1)[-1]) == ("derived", 5, "idle_ns")


def test_a_class_is_given_from_the_full_recording_with_the_range_of_both() -> None:
    short = scenes.fused_timeline(wall_ns=250 * US)
    long = scenes.timeline(
        [Kernel(scenes.FUSED_KERNELS[0], call_ns=200 * US, at_ns=220 * US, busy_ns=128 * US)],
        wall_ns=350 * US,
        host=[scenes.HostEvent("aten::mul", 20 * US, 150 * US)],
    )
    found = facts(scenes.scene(timelines={"profiled-cuda": short, "profiled-full": long}))
    dispatch = found["idle_dispatch_ns"]
    assert dispatch.value == dispatch.max == round(72 * US * 150 / 222)
    assert dispatch.min == 0
    assert dispatch.ci95 is None
    assert dispatch.detail is None
    alone = facts(scenes.scene(timelines={"profiled-cuda": short}))["idle_drain_ns"]
    assert alone.min == alone.value == alone.max
    assert alone.detail == "from profiled-cuda alone"


def test_drained_by_sync_is_scaled_like_a_class_and_stands_beside_them() -> None:
    kernels = [
        Kernel("a", call_ns=10 * US, at_ns=20 * US, busy_ns=30 * US),
        Kernel("b", call_ns=100 * US, at_ns=110 * US, busy_ns=30 * US),
    ]
    wait = scenes.HostEvent("cudaStreamSynchronize", 20 * US, 40 * US, kind=scenes.Kind.RUNTIME)
    line = scenes.timeline(kernels, wall_ns=200 * US, host=[wait])
    found = facts(scenes.scene(wall_ns=180 * US, timelines={"profiled-cuda": line, "profiled-full": line}))
    assert found["idle_ns"].value == 120 * US
    assert found["drained_by_sync_ns"].value == round(60 * US * 120 / 140)
    assert found["idle_sync_ns"].value == round(10 * US * 120 / 140)  # only what of the wait lies in the gap


def test_without_idle_there_is_nothing_to_divide() -> None:
    found = facts(scenes.scene(wall_ns=120 * US))
    assert found["idle_ns"].value == -8 * US
    assert found["idle_sync_ns"].missing == "not-applicable"


def test_data_of_one_cell_only() -> None:
    raw = scenes.raw(scenes.scene(), graph_scene())
    data: CellData = gather(raw, raw.record.cells[1])
    assert {s.cell for s in data.samples} == {raw.record.cells[1].id}
    assert set(data.recordings) == {"profiled-cuda"}
