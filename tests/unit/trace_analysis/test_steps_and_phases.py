"""Steps and phases: by launch, across threads, additive to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper_trace import PaperTrace

from kdaprof.analysis.trace.context import Context, DeviceView, device_view, make_context
from kdaprof.analysis.trace.phases import PhaseRow, phase_table
from kdaprof.analysis.trace.report import Scope, analyse
from kdaprof.analysis.trace.steps import step_table
from kdaprof.errors import UsageError

AUTOGRAD = 200


def two_steps() -> PaperTrace:
    """Two steps; `bwd` stands on the main thread and is launched from autograd's; a loader runs on a third."""
    made = PaperTrace()
    for step in range(2):
        at = step * 100_000
        made.annotation(f"ProfilerStep#{step}", at, at + 100_000)
        made.annotation("fwd", at + 1_000, at + 40_000)
        made.annotation("attention", at + 10_000, at + 30_000)
        made.annotation("bwd", at + 40_000, at + 80_000)
        made.annotation("load next batch", at + 5_000, at + 95_000, tid=300)
        made.launch((at + 2_000, at + 3_000), (at + 4_000, at + 10_000))
        made.launch((at + 11_000, at + 12_000), (at + 15_000, at + 25_000))
        made.launch((at + 35_000, at + 36_000), (at + 38_000, at + 50_000))  # of fwd, running into bwd
        made.launch((at + 45_000, at + 46_000), (at + 60_000, at + 90_000), tid=AUTOGRAD)
    return made


def view(made: PaperTrace, folder: Path) -> tuple[Context, DeviceView]:
    context = make_context(made.timeline(folder))
    return context, device_view(context, 0)


def rows(made: PaperTrace, folder: Path) -> dict[str, PhaseRow]:
    return {row.name: row for row in phase_table(*view(made, folder))[0]}


def test_device_events_belong_to_the_phase_they_were_launched_in(tmp_path: Path) -> None:
    found = rows(two_steps(), tmp_path)
    assert found["fwd"].self_busy_ns == 2 * (6_000 + 12_000)
    assert found["fwd"].total_busy_ns == 2 * (6_000 + 10_000 + 12_000)
    assert found["attention"].parent == "fwd"
    assert found["attention"].total_busy_ns == 2 * 10_000
    assert found["bwd"].total_busy_ns == 2 * 30_000, "launched from a thread of autograd's, in the time of bwd"
    assert found["bwd"].total_launches == 2
    assert "load next batch" not in found or not found["load next batch"].total_launches


def test_a_gap_belongs_to_the_innermost_phase_that_launched_both_sides(tmp_path: Path) -> None:
    found = rows(two_steps(), tmp_path)
    # 10 to 15 and 25 to 38 lie between events of fwd and attention: fwd holds both; 50 to 60 lies between phases.
    assert found["fwd"].total_idle_ns == 2 * (5_000 + 13_000)
    assert found["attention"].total_idle_ns == 0
    assert found["bwd"].total_idle_ns == 0


def test_phases_and_the_remainder_add_up(tmp_path: Path) -> None:
    context, device = view(two_steps(), tmp_path)
    table, outside = phase_table(context, device)
    assert sum(row.self_busy_ns for row in table) + outside.busy_ns == device.work.coverage.total_ns
    assert sum(row.self_idle_ns for row in table) + outside.idle_ns == device.gaps.split().total_ns
    assert sum(row.self_launches for row in table) + outside.launches == 8
    assert outside.idle_ns == 2 * 10_000 + 14_000


def test_steps_hold_what_was_launched_in_them_and_lead_is_apart(tmp_path: Path) -> None:
    context, device = view(two_steps(), tmp_path)
    first, second = step_table(context, device)
    for step in (first, second):
        assert step.busy_ns == 6_000 + 10_000 + 12_000 + 30_000
        assert step.idle_ns == 5_000 + 13_000 + 10_000
        assert step.span_ns == step.busy_ns + step.idle_ns == 86_000
        assert step.host_ns == 100_000
        assert step.launches == 4
        assert not step.partial
    assert (first.lead.total_ns, second.lead.total_ns) == (0, 14_000)
    total = sum(step.span_ns + step.lead.total_ns for step in (first, second))
    assert total == device.work.coverage.total_ns + device.gaps.split().total_ns


def test_a_kernel_that_runs_into_the_next_step_stays_with_its_launch(tmp_path: Path) -> None:
    made = PaperTrace()
    made.annotation("ProfilerStep#4", 0, 10_000)
    made.annotation("ProfilerStep#5", 10_000, 50_000)
    made.launch((8_000, 9_000), (9_500, 30_000))
    made.launch((20_000, 21_000), (30_000, 40_000))
    context, device = view(made, tmp_path)
    assert [(step.index, step.busy_ns) for step in step_table(context, device)] == [(4, 20_500), (5, 10_000)]


def test_overlapping_streams_are_counted_once_over_all_phases(tmp_path: Path) -> None:
    made = PaperTrace()
    made.annotation("a", 0, 1_500)
    made.annotation("b", 1_500, 9_000)
    made.launch((0, 1_000), (2_000, 10_000))
    made.launch((2_000, 3_000), (4_000, 12_000), stream=9)
    found = rows(made, tmp_path)
    assert (found["a"].self_busy_ns, found["b"].self_busy_ns) == (8_000, 2_000)


def test_a_range_inside_one_of_its_own_name_is_not_counted_twice(tmp_path: Path) -> None:
    made = PaperTrace()
    made.annotation("block", 0, 50_000)
    made.annotation("block", 1_000, 40_000)
    made.launch((2_000, 3_000), (4_000, 14_000))
    (row,) = phase_table(*view(made, tmp_path))[0]
    assert (row.calls, row.total_busy_ns, row.total_launches) == (1, 10_000, 1)


def test_nvtx_like_step_names_are_steps_when_there_are_no_others(tmp_path: Path) -> None:
    made = PaperTrace()
    for step in range(3):
        made.annotation(f"train_step {step}", step * 10_000, step * 10_000 + 9_000)
        made.launch((step * 10_000, step * 10_000 + 100), (step * 10_000 + 200, step * 10_000 + 5_000))
    assert [step.index for step in step_table(*view(made, tmp_path))] == [0, 1, 2]


def test_scope_by_steps_and_by_phase(tmp_path: Path) -> None:
    timeline = two_steps().timeline(tmp_path)
    only = analyse(timeline, Scope(first_step=1)).devices[0]
    assert (only.busy_ns, only.idle.total_ns, only.busy.events) == (58_000, 28_000, 4)
    assert [step.index for step in only.steps] == [1]
    phase = analyse(timeline, Scope(phase="fwd")).devices[0]
    assert phase.busy_ns == 2 * 28_000
    assert phase.idle.total_ns == 2 * 18_000, "what lies between the two windows is not asked for"
    assert [step.name for step in phase.steps] == ["fwd", "fwd"]


@pytest.mark.parametrize("scope", [Scope(phase="absent"), Scope(first_step=7), Scope(first_step=0, last_step=0)])
def test_a_scope_that_is_not_there_names_what_is(tmp_path: Path, scope: Scope) -> None:
    with pytest.raises(UsageError, match=r"the trace has"):
        analyse(two_steps().timeline(tmp_path), scope)
