"""Steps and phases of a running loop on the device: work trails its launch, and borders lie where events would fall."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper_trace import PaperTrace

from kdaprof.analysis.trace.loop import entries_of, idle_share, loop_splits, loop_tables
from kdaprof.timeline.columns import Timeline


@pytest.fixture
def line(tmp_path: Path) -> Timeline:
    """Two steps of 1,000 ns each. The host issues a phase's kernel in 50 ns; the device needs 400 and 300 for them.

    In step 0 it begins at 150 with fwd, and with bwd when that has ended; in step 1 the host is late with bwd.
    """
    trace = PaperTrace()
    trace.annotation("ProfilerStep#7", 0, 1_000)
    trace.annotation("phase fwd", 100, 200)
    trace.launch((100, 150), (160, 560), name="forward")
    trace.annotation("phase bwd", 200, 300)
    trace.launch((200, 250), (560, 860), name="backward")
    trace.annotation("ProfilerStep#8", 1_000, 2_000)
    trace.annotation("phase fwd", 1_100, 1_200)
    trace.launch((1_100, 1_150), (1_160, 1_560), name="forward")
    trace.annotation("phase bwd", 1_700, 1_800)
    trace.launch((1_700, 1_750), (1_760, 2_060), name="backward")
    trace.launch((1_820, 1_830), (2_060, 2_070), name="stray", api="cudaMemcpyAsync", cat="gpu_memcpy")
    return trace.timeline(tmp_path)


def test_entries_belong_to_their_steps(line: Timeline) -> None:
    assert [(e.step, e.window) for e in entries_of(line, "bwd")] == [(7, (200, 300)), (8, (1_700, 1_800))]
    assert [e.step for e in entries_of(line, "step")] == [7, 8]
    other = [(e.step, e.window) for e in entries_of(line, "other")]
    assert other == [
        (7, (0, 100)),
        (7, (300, 1_000)),
        (8, (1_000, 1_100)),
        (8, (1_200, 1_700)),
        (8, (1_800, 2_000)),
    ]
    assert entries_of(line, "opt") == ()


def test_work_is_the_phases_that_launched_it_however_late_it_ran(line: Timeline) -> None:
    fwd, bwd = loop_splits(line, "fwd", device=0), loop_splits(line, "bwd", device=0)
    busy = [split.device.busy.busy_ns for split in (*fwd, *bwd) if split.device is not None]
    assert busy == [400, 400, 300, 300]
    # Step 7's bwd begins on the device when fwd's kernel is done; in step 8 only when the host has come that far.
    assert [(split.start_ns, split.end_ns) for split in bwd] == [(560, 860), (1_700, 2_060)]
    assert [split.idle_ns for split in bwd] == [0, 60]
    assert [split.launch_total for split in fwd] == [1, 1]


def test_phases_and_other_add_up_to_their_step(line: Timeline) -> None:
    whole = {split.index: split for split in loop_splits(line, "step", device=0)}
    for step in (7, 8):
        parts = [s for name in ("fwd", "bwd", "other") for s in loop_splits(line, name, device=0) if s.index == step]
        assert sum(part.wall_ns for part in parts) == whole[step].wall_ns
        assert sum(part.device.busy.busy_ns for part in parts if part.device) == whole[step].device.busy.busy_ns  # type: ignore[union-attr]
        for part in (*parts, whole[step]):
            device = part.device
            assert device is not None
            assert part.wall_ns == device.busy.busy_ns + device.idle.total_ns + device.drain_ns
    # Step 8 ends on the device where its last work ended, 70 ns after the border of the host.
    assert (whole[8].start_ns, whole[8].end_ns) == (1_000, 2_070)


def test_a_phase_that_launched_nothing_has_a_busy_time_of_zero(line: Timeline) -> None:
    first = loop_splits(line, "other", device=0)[0]
    assert first.device is not None
    assert (first.device.busy.busy_ns, first.idle_ns) == (0, 100)


def test_idle_share_and_tables(line: Timeline, tmp_path: Path) -> None:
    # Step 7: 700 of 1,000 ns. Step 8: 710 of 1,070 ns.
    assert idle_share(line) == pytest.approx(1 - (700 + 710) / 2_070)
    assert [{row.name for row in table} for table in loop_tables(line, "step")] == [
        {"forward", "backward"},
        {"forward", "backward", "stray"},
    ]
    empty = PaperTrace()
    empty.annotation("ProfilerStep#0", 0, 10)
    empty.op("aten::add", 1, 2)
    assert idle_share(empty.timeline(tmp_path)) is None
    assert [split.device for split in loop_splits(empty.timeline(tmp_path), "step", device=None)] == [None]
