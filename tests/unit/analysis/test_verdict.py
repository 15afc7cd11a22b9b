"""The verdict in sentences: what ran, where the time goes, who is faster; never a figure that a rule refuses."""

from __future__ import annotations

import re
from dataclasses import replace

import guard_scenes
import pytest
import scenes
from finding_scenes import graph_view, judged, path_view, split
from scenes import MS, US, figure, view

from kdaprof.analysis.findings import find
from kdaprof.analysis.verdict import sentence
from kdaprof.analysis.view import CellView
from kdaprof.runs.facts import absent
from kdaprof.runs.results import CellResult, Evidence, RunResults, Witness
from kdaprof.runs.units import format_ns


def said(*views: CellView, complete: bool = True) -> tuple[str, ...]:
    """The verdict on these cells, rules and findings applied as in a run."""
    run = replace(views[0].run, cells=tuple(one.cell for one in views), complete=complete)
    spoken = judged(*(replace(one, run=run) for one in views))
    cells = tuple(CellResult(id=one.cell.id, facts=dict(one.facts), evidence=one.evidence) for one in spoken)
    return sentence(run, RunResults(run=run.run, cells=cells, findings=find(spoken)))


def host_bound(path: str = "fused", share: float = 0.81, wall: int = 223 * US, phase: str = "fwd") -> CellView:
    idle = round(share * wall)
    return path_view(
        path, wall, phase=phase, **split(share, idle=idle, wall=wall, dispatch=idle), gpu_busy_ns=figure(wall - idle)
    )


def test_a_host_bound_path_with_its_graph() -> None:
    assert said(host_bound(), graph_view(71 * US)) == (
        "fused: the fused path ran (3 of 3 witnesses). The GPU waits 81 % of a forward call, mostly for host "
        "dispatch; a CUDA Graph takes it from 223 µs to 71.0 µs (busy 42.4 µs).",
    )


def test_both_phases_in_one_sentence() -> None:
    (line,) = said(
        host_bound(),
        replace(host_bound(phase="fwdbwd", wall=500 * US), backward_kernels_seen=True),
        graph_view(71 * US),
    )
    assert line.endswith(
        "(busy 42.4 µs); the GPU waits 81 % of a forward + backward call, mostly for host dispatch "
        "(wall 500 µs, busy 95.0 µs)."
    )
    assert line.count(". ") == 1, "two sentences a path"


def test_a_gpu_bound_path_beside_its_floor() -> None:
    shown = path_view("fused", 200 * US, **split(0.08), gpu_busy_ns=figure(184 * US))
    assert said(shown) == (
        "fused: the fused path ran (3 of 3 witnesses). The GPU is busy 92 % of a forward call (wall 200 µs, busy 184 "
        "µs, floor 19.0 µs).",
    )


def test_idle_without_a_cause_names_none() -> None:
    (line,) = said(path_view("fused", 200 * US, **split(0.36)))
    assert "The GPU waits 36 % of a forward call (wall 200 µs, busy 128 µs)." in line


def test_paths_against_each_other_with_the_interval() -> None:
    lines = said(host_bound(), host_bound("tensor", 0.84, 7_250 * US))
    assert len(lines) == 3
    assert re.fullmatch(r"fused against tensor: 32\.5 times as fast in forward \(32\.\d…32\.\d\)\.", lines[2])


def test_equal_paths_are_the_same_and_not_faster() -> None:
    assert said(host_bound(), host_bound("tensor"))[2].startswith(
        "fused against tensor: the same in forward (1.00…1.00)"
    )


def test_an_unfinished_run_says_so() -> None:
    assert said(host_bound(), complete=False)[-1] == "The run is partial: 1 cell finished before it ended."


# ---------------------------------------------------------------- what did not run, or is not what it says


def test_a_contradicted_path_states_no_figure() -> None:
    witnesses = (
        Witness(name="gate", says="tensor", detail=""),
        Witness(name="kernels", says="fused", detail=""),
        Witness(name="counts", says="not tensor", detail=""),
    )
    wrong = Evidence(verdict="contradicted", expected="tensor", witnesses=witnesses)
    assert said(replace(host_bound("tensor"), evidence=wrong)) == (
        "tensor: another path ran in forward (kernels fused, counts not tensor), so none of its figures may be quoted "
        "(Q06).",
    )


def test_a_wrong_output_states_no_figure() -> None:
    (line,) = said(guard_scenes.seen(check=guard_scenes.check(1.4e-3)))
    assert line == (
        "fused: its output is wrong in forward: o differs by 1.4e-3 (relative L2 against reference, tolerance 1.0e-5); "
        "its times mean nothing (Q09)."
    )


def test_a_failed_path_gives_its_error_and_the_others_go_on() -> None:
    failed = scenes.failed_scene("compiled")
    dead = view(failed, facts={}, evidence=Evidence(verdict="none", expected="compiled"))
    lines = said(host_bound(), dead)
    assert lines[1] == ("compiled: failed: RuntimeError: CUDA error: operation not permitted when stream is capturing.")


def test_partial_evidence_names_the_silent_witness() -> None:
    names = (("gate", "fused"), ("kernels", "fused"), ("counts", None))
    witnesses = tuple(Witness(name=name, says=word, detail="") for name, word in names)  # type: ignore[arg-type]
    partial = Evidence(verdict="partial", expected="fused", witnesses=witnesses)
    (line,) = said(replace(host_bound(), evidence=partial))
    assert line.startswith("fused: the fused path ran (2 of 3 witnesses; counts cannot speak).")


def test_a_path_that_nothing_shows_is_not_claimed() -> None:
    none = Evidence(verdict="none", expected="fused", witnesses=())
    (line,) = said(replace(host_bound(), evidence=none))
    assert line.startswith("fused: nothing on the device shows that the fused path ran (0 of 3 witnesses, Q06).")
    assert "223" not in line


# ---------------------------------------------------------------- without a GPU


@pytest.mark.parametrize(("interpreted", "where"), [(True, "in Triton's interpreter"), (False, "on the CPU")])
def test_on_a_cpu_only_the_outputs_count(interpreted: bool, where: str) -> None:
    (line,) = said(guard_scenes.seen(device="cpu", interpreted=interpreted))
    assert (
        line == f"fused: ran {where}: outputs agree with the reference (error 3.1e-7); its times are not speed (Q08)."
    )


# ---------------------------------------------------------------- refusals


def test_a_loaded_host_leaves_the_device_time_and_names_the_rule() -> None:
    run = guard_scenes.in_conditions(host={"load1": 60.0}).run
    (line,) = said(replace(host_bound(), run=run))
    assert line.endswith(
        "Forward: busy 42.4 µs; wall refused: load average 60.0 on 16 cores before the run began (Q05)."
    )


def test_a_missing_recording_is_told_as_missing() -> None:
    gone = absent("ns", "not-supported", "no repeat was profiled")
    shares = absent("fraction", "not-supported", "no repeat was profiled")
    shown = path_view("fused", 200 * US, gpu_busy_ns=gone, idle_ns=gone, host_bound=shares)
    (line,) = said(shown)
    assert "Forward: wall 200 µs; busy and host-bound share missing: no repeat was profiled." in line


@pytest.mark.parametrize("name", ["wall_ns", "gpu_busy_ns"])
def test_no_refused_figure_is_stated(name: str) -> None:
    wide = figure(7_777 * US if name == "wall_ns" else 3_333 * US, half=0.5)
    shown = host_bound()
    (line,) = said(replace(shown, facts={**shown.facts, name: wide}), graph_view(71 * US))
    assert wide.value is not None
    assert format_ns(wide.value) not in line
    assert "Q02" in line


def test_a_refused_graph_wall_is_left_out() -> None:
    graph = graph_view(71 * US)
    (line,) = said(host_bound(), replace(graph, facts={**graph.facts, "wall_ns": figure(71 * MS, half=0.5)}))
    assert "CUDA Graph" not in line
    assert "The GPU waits 81 % of a forward call, mostly for host dispatch (wall 223 µs, busy 42.4 µs)." in line


def test_a_step_of_several_sizes_says_of_which_it_speaks() -> None:
    def sized(path: str, batch: int, wall: int = 223 * US) -> CellView:
        shown = host_bound(path, phase="step", wall=wall)
        return replace(shown, cell=replace(shown.cell, key=replace(shown.cell.key, shape=(("B", batch), ("T", 512)))))

    assert "of a step, " in said(sized("fused", 1))[0]
    first, *_, compared = said(sized("fused", 1), sized("fused", 2), sized("tensor", 1, wall=900 * US))
    assert "of a step at B 1, " in first
    assert "as fast in step at B 1 (" in compared
