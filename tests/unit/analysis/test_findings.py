"""Diagnoses: each is made in its scene, not in its near miss, and says numbers, threshold and next step."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import guard_scenes
import pytest
import scenes
from finding_scenes import SCENES, FindingScene, facts, graph_view, judged, path_view, split
from scenes import MS, US, figure, good_facts, view

import kdaprof.analysis.findings as package
from kdaprof.analysis.findings import find
from kdaprof.analysis.findings.bound import bound_of
from kdaprof.analysis.findings.figures import between
from kdaprof.analysis.view import CellView, WarmUp
from kdaprof.runs.facts import Fact
from kdaprof.runs.record import Capture
from kdaprof.runs.results import Finding

CASES = [pytest.param(name, one, id=f"{name}-{one.what}") for name, many in SCENES.items() for one in many]


def ids(views: tuple[CellView, ...]) -> list[str]:
    return [finding.id for finding in find(views)]


def only(name: str, *views: CellView) -> Finding:
    (found,) = (finding for finding in find(views) if finding.id == name)
    return found


@pytest.mark.parametrize(("name", "scene"), CASES)
def test_the_scene_earns_its_finding(name: str, scene: FindingScene) -> None:
    assert name in ids(scene.trips)


@pytest.mark.parametrize(("name", "scene"), CASES)
def test_the_near_miss_does_not(name: str, scene: FindingScene) -> None:
    assert name not in ids(scene.spares)


@pytest.mark.parametrize(("name", "scene"), CASES)
def test_a_finding_cites_numbers_threshold_and_next_step(name: str, scene: FindingScene) -> None:
    (found,) = (finding for finding in find(scene.trips) if finding.id == name)
    assert found.evidence
    assert found.threshold
    assert found.next.endswith(".")
    assert "\n" not in found.text
    assert not found.text.endswith(".")


def test_every_finding_in_the_code_has_a_scene() -> None:
    text = "".join(path.read_text() for path in Path(package.__file__).parent.glob("*.py"))
    kebab = r'"([a-z]+(?:-[a-z]+)+)"'
    lines = re.findall(r"^(?: +id=.*|[A-Z]+ = .*)$", text, re.M)
    assert {name for line in lines for name in re.findall(kebab, line)} == set(SCENES)


def test_a_quiet_good_cell_has_nothing_worse_than_a_note() -> None:
    assert {finding.severity for finding in find(judged(view()))} <= {"info"}


# ---------------------------------------------------------------- order


def test_contradiction_first_then_severity_then_the_run_then_cells() -> None:
    wrong = guard_scenes.seen(check=guard_scenes.check(1.0))
    bad = replace(path_view("tensor", 7 * MS), evidence=SCENES["path-contradicted"][0].trips[0].evidence)
    busy = guard_scenes.in_conditions(host={"load1": 60.0}).run
    views = judged(*(replace(one, run=busy) for one in (wrong, bad)))
    found = find(views)
    assert [finding.id for finding in found[:3]] == ["path-contradicted", "wrong-output", "host-loaded"]
    assert found == find(views)
    ranks = [("error", "warn", "info").index(finding.severity) for finding in found]
    assert ranks == sorted(ranks)


def test_the_machine_is_told_of_once_a_run() -> None:
    run = guard_scenes.in_conditions(host={"load1": 60.0}).run
    views = judged(*(replace(path_view(path, 200 * US), run=run) for path in ("fused", "tensor")))
    assert ids(views).count("host-loaded") == 1


def test_without_a_gpu_nothing_is_said_of_what_disturbs_times() -> None:
    run = guard_scenes.in_conditions(host={"load1": 60.0}).run
    shown = guard_scenes.seen(device="cpu", interpreted=True)
    drifting = replace(shown, run=run, warmup=WarmUp(steady_from=None, change_points=(), n=23))
    assert ids(judged(drifting)) == []


def test_a_cell_that_made_no_output_has_no_wrong_one() -> None:
    for status in ("failed", "unavailable"):
        dead = view(scenes.failed_scene(mode="graph", status=status, capture=None, check=None), facts={})
        assert "graph-output-differs" not in ids((dead,))


# ---------------------------------------------------------------- host and graph


def test_host_bound_shows_what_capturing_gave() -> None:
    eager = guard_scenes.with_facts(
        **split(0.84, idle=6_080 * US, wall=7_250 * US, dispatch=4_000 * US),
        gpu_busy_ns=figure(1_170 * US),
        launches=figure(287, "1", half=0.0),
        graph_removed=figure(0.974, "fraction", provenance="derived"),
    )
    found = only("host-bound", *judged(eager, graph_view(1_330 * US, 20 * US)))
    assert found.severity == "warn"
    assert found.text == (
        "fused forward: the GPU waits 84 % of a call, mostly for the host: wall 7.25 ms, GPU busy 1.17 ms for 287 "
        "launches; most of the idle is dispatch (4.00 ms)"
    )
    assert found.next == (
        "Capture the call in a CUDA Graph. Measured here: eager 7.25 ms → graph 1.33 ms → busy 1.17 ms → floor "
        "19.0 µs, 97 % of the launch overhead gone; copying new inputs costs 20.0 µs more."
    )
    assert found.evidence["graph_wall_ns"] == 1_330 * US


def part_of_step(phase: str, **facts: Fact) -> CellView:
    key = replace(scenes.key(), workload="step", phase=phase, shape=(("B", 8),))
    one = scenes.scene(cell_key=key, wall_ns=200 * US, warm=(200 * US,) * 5)
    made = good_facts("eager", **facts)
    return view(one, facts=made, evidence=scenes.good_evidence(), warmup=WarmUp(steady_from=0, change_points=(), n=105))


@pytest.mark.parametrize(("share", "severity"), [(0.08, "info"), (0.14, "info"), (0.16, "warn"), (0.8, "warn")])
def test_a_phase_that_waits_for_the_host_is_no_warning_where_the_gpu_bounds_its_step(
    share: float, severity: str
) -> None:
    whole = part_of_step("step", **split(share, idle=2 * MS))
    phase = part_of_step("retr", **split(0.89, idle=500 * US, dispatch=400 * US))
    (found,) = (f for f in find(judged(whole, phase)) if f.cell == phase.cell.id and f.id == "host-bound")
    assert found.severity == severity
    assert ("the host runs ahead" in found.text) == (severity == "info")
    assert found.evidence.get("step_host_bound") == (share if severity == "info" else None)
    assert ("Leave it" in found.next) == (severity == "info")


def test_a_failed_capture_is_the_next_step_of_host_bound() -> None:
    broken = view(scenes.scene(mode="graph", capture=Capture(captured=False, operation="aten::item", error="no")))
    found = only("host-bound", *judged(guard_scenes.with_facts(**split(0.8)), broken))
    assert "capture-failed" in found.next


def test_a_failed_capture_names_operation_line_and_hint() -> None:
    found = only("capture-failed", *SCENES["capture-failed"][0].trips)
    assert found.text == "fused forward (graph): aten::item at model.py:12 broke the capture: operation not permitted"
    assert found.next == "Keep it on the GPU."


def test_a_refused_graph_wall_is_not_cited() -> None:
    graph = replace(graph_view(70 * US), facts={**graph_view(70 * US).facts, "wall_ns": figure(70 * US, half=0.5)})
    found = only("host-bound", *judged(guard_scenes.with_facts(**split(0.8)), graph))
    assert "graph_wall_ns" not in found.evidence
    assert "70" not in found.next


# ---------------------------------------------------------------- bound


@pytest.mark.parametrize(
    ("kind", "share", "classes"),
    [
        ("gpu", 0.149, {"dispatch": 70 * US}),
        ("host", 0.15, {"dispatch": 30 * US, "host_other": 6 * US, "launch_latency": 30 * US}),
        ("device_wait", 0.5, {"launch_latency": 30 * US, "device_wait": 6 * US, "dispatch": 30 * US}),
        ("mixed", 0.5, {"dispatch": 35 * US, "device_wait": 35 * US}),
        ("sync", 0.5, {"dispatch": 60 * US, "drained_by_sync": 36 * US}),
        ("unknown", 0.5, {"dispatch": 50 * US, "no_launch_record": 15 * US}),
        ("idle", 0.5, {}),
    ],
)
def test_what_bounds_a_call(kind: str, share: float, classes: dict[str, float]) -> None:
    (one,) = facts(**split(share, **classes))
    assert bound_of(one.facts).kind == kind


def test_nothing_bounds_a_call_whose_split_is_refused() -> None:
    (one,) = judged(guard_scenes.in_conditions(host={"load1": 60.0}))
    assert bound_of(one.facts).kind == "unknown"


# ---------------------------------------------------------------- comparisons


def test_paths_are_compared_by_interleaved_rounds() -> None:
    found = only("paths-compared", *judged(path_view("tensor", 7 * MS), path_view("fused", 200 * US)))
    assert found.evidence["fastest"] == "fused"
    assert found.evidence["tensor_verdict"] == "slower"
    assert found.evidence["tensor_ratio"] == pytest.approx(35.0, rel=1e-3)
    assert "tensor takes 35" in found.text


@pytest.mark.parametrize(
    ("low", "high", "text"), [(36.249, 36.251, "36.2…36.3"), (0.9876, 1.0123, "0.98…1.02"), (1.0, 1.0, "1.00…1.00")]
)
def test_an_interval_is_rounded_outwards(low: float, high: float, text: str) -> None:
    assert between(low, high) == text


def test_equal_paths_are_called_the_same() -> None:
    found = only("paths-compared", *judged(path_view("tensor", 200 * US), path_view("fused", 200 * US)))
    assert found.evidence["fused_verdict"] == "same"


def test_a_step_whose_op_is_left_out_is_no_path_to_compare_with() -> None:
    views = judged(*(path_view(p, w) for p, w in (("tensor", 7 * MS), ("copy", 100 * US), ("fused", 200 * US))))
    found = only("paths-compared", *views)
    assert found.evidence["fastest"] == "fused"
    assert "copy" not in found.text


def test_a_path_that_is_no_measurement_is_not_compared() -> None:
    wrong = replace(
        path_view("tensor", 7 * MS), cell=guard_scenes.seen(check=guard_scenes.check(1.0)).cell, run=view().run
    )
    wrong = replace(wrong, cell=replace(wrong.cell, key=scenes.key("tensor")))
    assert "paths-compared" not in ids(judged(path_view("fused", 200 * US), wrong))


def test_a_loaded_host_still_allows_an_interleaved_ratio() -> None:
    run = guard_scenes.in_conditions(host={"load1": 60.0}).run
    views = judged(*(replace(path_view(p, w), run=run) for p, w in (("fused", 200 * US), ("tensor", 7 * MS))))
    assert "paths-compared" in ids(views)


def test_less_gpu_work_but_more_wall_names_the_host_and_both_figures() -> None:
    found = only("gpu-fast-but-slower-a-call", *SCENES["gpu-fast-but-slower-a-call"][0].trips)
    assert found.text.startswith(
        "compiled forward: GPU busy 950 µs against tensor's 1.17 ms, yet a call takes 1.14 × the time"
    )
    assert "back to back" in found.text
    assert found.text.endswith("the host decides")
