from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
import scenes
from scenes import US, Kernel, Scene

from kdaprof.analysis.celldata import gather
from kdaprof.analysis.derive import backward_seen, derive, judged_views
from kdaprof.analysis.view import KernelRow, RawRun
from kdaprof.runs.codec import dumps, to_json
from kdaprof.runs.facts import facts_of
from kdaprof.runs.record import DeclaredCounts


def graph_scene() -> Scene:
    kernels = [
        Kernel(name, call_ns=10 * US, at_ns=(20 + 61 * i) * US, busy_ns=60 * US, graph=True, api="cudaGraphLaunch")
        for i, name in enumerate(scenes.FUSED_KERNELS)
    ]
    return scenes.scene(
        mode="graph", wall_ns=140 * US, timelines={"profiled-cuda": scenes.timeline(kernels, wall_ns=160 * US)}
    )


def tensor_scene(phase: str = "fwd", launches: int = 40) -> Scene:
    names = ("void cutlass_80_simt_sgemm(float)", "void trsm_left(float)", "void at::native::exp_kernel_cuda(float)")
    kernels = [
        Kernel(names[i % 3], call_ns=20 * US * i, at_ns=20 * US * i + 10 * US, busy_ns=2 * US) for i in range(launches)
    ]
    line = scenes.timeline(kernels, wall_ns=launches * 20 * US + 50 * US)
    return scenes.scene(
        path="tensor",
        phase=phase,
        wall_ns=launches * 20 * US,
        host_ns=launches * 19 * US,
        timelines={"profiled-cuda": line, "profiled-full": line},
        declared=DeclaredCounts(launches=(launches, launches), allocs=(3, 3)),
    )


def whole_run() -> RawRun:
    return scenes.raw(
        scenes.scene(util=[0.64, 0.62, 0.66]), graph_scene(), tensor_scene(), scenes.failed_scene("compiled")
    )


def test_every_cell_of_the_record_has_a_result_in_its_order() -> None:
    raw = whole_run()
    results = derive(raw)
    assert results.run == scenes.RUN_ID
    assert [c.id for c in results.cells] == [c.id for c in raw.record.cells]
    for cell, result in zip(raw.record.cells, results.cells, strict=True):
        assert list(result.facts) == list(facts_of(cell.key.mode))


def test_a_good_run_is_quotable_and_confirmed() -> None:
    eager, graph, tensor, failed = derive(whole_run()).cells
    assert [c.evidence.verdict for c in (eager, graph, tensor, failed)] == ["confirmed"] * 3 + ["none"]
    present = {name: fact for name, fact in eager.facts.items() if fact.value is not None}
    assert {name for name, fact in present.items() if not fact.quotable} == set()
    assert eager.facts["graph_removed"].value == pytest.approx(60 / 72)
    assert [s.name for s in eager.stages] == ["prepare", "recur"]
    assert sum(s.kernels for s in tensor.stages) == 40
    assert eager.stages[0].share == pytest.approx(0.35)


def test_the_same_run_gives_the_same_bytes_whatever_the_order_of_its_parts() -> None:
    raw = whole_run()
    first = dumps(to_json(derive(raw)))
    assert dumps(to_json(derive(raw))) == first
    names = list(raw.samples)
    random.Random(1).shuffle(names)
    turned = replace(
        raw,
        samples={name: raw.samples[name] for name in names},
        timelines=dict(reversed(list(raw.timelines.items()))),
    )
    assert dumps(to_json(derive(turned))) == first


def test_its_json_is_strict() -> None:
    def refuse(name: str) -> float:
        raise AssertionError(name)

    json.loads(dumps(to_json(derive(whole_run()))), parse_constant=refuse)


def test_a_rule_that_refuses_a_part_refuses_what_is_made_of_it_across_cells() -> None:
    wide = [[150 * US] * 20, [300 * US] * 20, [180 * US] * 20, [260 * US] * 20, [200 * US] * 20]
    graph = graph_scene()
    shaky = tuple(
        replace(s, wall_ns=wide[s.round][0]) if s.repeat == "unprofiled" and s.round >= 0 else s for s in graph.samples
    )
    eager, replay = derive(scenes.raw(scenes.scene(), replace(graph, samples=shaky))).cells
    assert "Q02" in {r.rule for r in replay.facts["wall_ns"].reasons}
    assert eager.facts["wall_ns"].quotable
    removed = eager.facts["graph_removed"]
    assert not removed.quotable
    assert {"Q02", "Q13"} <= {r.rule for r in removed.reasons}


def test_a_mislabelled_path_is_contradicted_from_its_kernels() -> None:
    wrong = scenes.scene(path="tensor", declared=DeclaredCounts(launches=(287, 287), allocs=(282, 282)))
    results = derive(scenes.raw(wrong))
    assert results.cells[0].evidence.verdict == "contradicted"
    assert results.findings[0].severity == "error"
    assert not results.cells[0].facts["wall_ns"].quotable


def test_on_a_laptop_there_are_results_and_none_is_speed() -> None:
    result = derive(scenes.raw(scenes.cpu_scene(), gpu=False)).cells[0]
    assert result.evidence.verdict == "gate-only"
    assert result.facts["error_l2"].quotable
    assert {r.rule for r in result.facts["wall_ns"].reasons} == {"Q08"}
    assert result.stages == ()


def test_an_empty_run_derives_to_nothing() -> None:
    assert derive(scenes.raw()).cells == ()


def test_views_carry_warm_up_kernels_and_judged_figures() -> None:
    view = judged_views(scenes.raw(scenes.scene()))[0]
    assert view.warmup.steady_from == 1
    assert [k.name for k in view.kernels] == list(scenes.FUSED_KERNELS)
    assert (view.kernels[0].calls, view.kernels[0].busy_ns) == (1, 70 * US)
    assert view.extra == {"spikes": 0, "steady_samples": 100, "cold_samples": 1, "first_wall_ns": 4_000_000}
    assert view.backward_kernels_seen is None


def test_figures_and_rules_take_the_same_samples() -> None:
    raw = scenes.raw(scenes.scene())
    data, view = gather(raw, raw.record.cells[0]), judged_views(raw)[0]
    assert {sample.round for sample in view.steady()} == set(range(5))
    assert len(view.steady()) == view.facts["wall_ns"].n
    # What has no rounds, a running loop, has its warm-up by the steady segment alone.
    alone = tuple(replace(sample, round=-1) for sample in data.samples)
    assert replace(view, samples=alone).steady() == replace(data, samples=alone).steady()
    assert [sample.index for sample in replace(view, samples=alone).steady()] == list(range(1, 105))


def rows(*calls: int, name: str = "gemm") -> tuple[KernelRow, ...]:
    return tuple(KernelRow(name=f"{name}{i}", calls=count, busy_ns=1) for i, count in enumerate(calls))


@pytest.mark.parametrize(
    ("phase", "kernels", "forward", "seen"),
    [
        ("fwd", rows(3), (), None),
        ("bwd", (), (), None),
        ("bwd", rows(3), (), True),
        ("fwdbwd", rows(287), rows(287), False),
        ("fwdbwd", rows(1379), rows(287), True),
        ("fwdbwd", rows(1379), (), None),
        ("fwdbwd", rows(2, name="kdaprof_kda_fwd_prepare"), rows(2, name="kdaprof_kda_fwd_prepare"), False),
        ("fwdbwd", rows(1, name="kdaprof_kda_bwd_prepare"), rows(2), True),
        ("fwdbwd", rows(1, name="cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16"), rows(1), True),
        ("fwdbwd", rows(1, name="cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16"), rows(1), False),
        ("fwdbwd", rows(1, name="void at::native::layer_norm_grad_input_kernel_Backward"), rows(1), True),
    ],
)
def test_whether_a_backward_ran_by_the_kernels(
    phase: str, kernels: tuple[KernelRow, ...], forward: tuple[KernelRow, ...], seen: bool | None
) -> None:
    assert backward_seen(phase, kernels, forward) is seen


def test_a_training_cell_whose_backward_never_ran_is_refused() -> None:
    both = tensor_scene(phase="fwdbwd", launches=40)  # exactly what its forward launches
    view = next(v for v in judged_views(scenes.raw(tensor_scene(), both)) if v.cell.key.phase == "fwdbwd")
    assert view.backward_kernels_seen is False
    assert "Q07" in {r.rule for r in view.facts["wall_ns"].reasons}
