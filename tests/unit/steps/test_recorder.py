"""Borders in fake time, where every nanosecond is known: sums, marks, nesting, exceptions, misuse."""

from __future__ import annotations

import pytest
from loop_parts import MS, Loop

from kdaprof.errors import UsageError
from kdaprof.instruments.allocator import AllocatorCounters
from kdaprof.instruments.steps.recorder import HOLD_NS, HOLD_STEPS
from kdaprof.instruments.steps.rows import tables_of
from kdaprof.runs.cells import CellKey
from kdaprof.runs.samples import Sample

WHOLE = CellKey("step", "own", "plain", "eager", "step", (("B", 2),), "float32")


def test_phases_and_other_add_up_to_the_step_on_both_clocks() -> None:
    loop = Loop(mark_ns=8_500)
    loop.train(40)
    loop.recorder.drain()
    assert [spans.number for spans in loop.steps] == list(range(40))
    for spans in loop.steps:
        assert spans.span_ns is not None
        assert sum(p.wall_ns for p in spans.phases) + spans.other_ns == spans.wall_ns
        parts = [p.span_ns for p in spans.phases]
        assert None not in parts
        assert sum(part or 0 for part in parts) + (spans.other_span_ns or 0) == spans.span_ns
    warm = loop.steps[-1]
    # The device is the slower one: its spans are its own work, though the host issued each phase in 1 ms.
    assert {p.name: p.span_ns for p in warm.phases} == {"fwd": 3 * MS, "bwd": 6 * MS, "opt": 3 * MS}
    assert {p.name: p.wall_ns for p in warm.phases} == {"fwd": 1 * MS, "bwd": 1 * MS, "opt": 1 * MS}
    assert warm.other_span_ns == 0


def test_the_cost_of_marks_lies_outside_the_phases() -> None:
    dear, cheap = Loop(mark_ns=50_000), Loop(mark_ns=0)
    for loop in (dear, cheap):
        loop.train(3)
        loop.recorder.drain()
    for one, other in zip(dear.steps, cheap.steps, strict=True):
        assert [p.wall_ns for p in one.phases] == [p.wall_ns for p in other.phases]
    # Seven borders take five marks: fwd's end is bwd's begin, fwd begins with the step and opt ends with it.
    assert dear.marks.made == 3 * 5
    assert cheap.marks.out == set()  # all given back


def test_work_between_phases_is_never_counted_as_the_next_phase() -> None:
    loop = Loop()
    with loop.recorder.step():
        loop.work("fwd", 1 * MS, 1 * MS)
        loop.device.launch(100_000, 5 * MS)
        loop.work("bwd", 1 * MS, 1 * MS)
    loop.recorder.drain()
    spans = loop.steps[0]
    assert spans.other_ns == 100_000
    assert spans.other_span_ns == 5 * MS
    # One launch of a whole graph: short on the host, and never lost on the device (which idles while it is issued).
    with loop.recorder.step(), loop.recorder.phase("graph"):
        loop.device.launch(2_000, 7 * MS)
    loop.recorder.drain()
    assert loop.steps[1].phases[0].span_ns == 7 * MS + 2_000


def test_the_loop_is_never_waited_for_and_no_step_is_lost() -> None:
    loop = Loop()
    loop.train(50)
    # The host ran far ahead of the device; nothing was synchronised, and steps wait for their marks.
    assert loop.device.synchronized == 0
    assert loop.marks.waited == 0
    assert 0 < len(loop.steps) < 50
    loop.recorder.drain()
    assert len(loop.steps) == 50
    assert loop.marks.out == set()


def test_gradient_accumulation_enters_a_phase_several_times() -> None:
    loop = Loop()
    with loop.recorder.step():
        for _ in range(4):
            loop.work("fwd", 1 * MS, 2 * MS)
            loop.work("bwd", 1 * MS, 4 * MS)
        loop.work("opt", 1 * MS, 1 * MS)
    loop.recorder.drain()
    found = {p.name: (p.calls, p.wall_ns, p.span_ns) for p in loop.steps[0].phases}
    # The device begins when the first kernel is there, 1 ms after the step: that millisecond is fwd's.
    assert found == {"fwd": (4, 4 * MS, 9 * MS), "bwd": (4, 4 * MS, 16 * MS), "opt": (1, 1 * MS, 1 * MS)}


def test_nested_phases_are_shown_and_not_summed() -> None:
    loop = Loop()
    with loop.recorder.step(), loop.recorder.phase("fwd"):
        loop.device.launch(1 * MS, 1 * MS)
        loop.work("attn", 2 * MS, 2 * MS)
    loop.recorder.drain()
    spans = loop.steps[0]
    assert [(p.name, p.nested, p.wall_ns) for p in spans.phases] == [("fwd", False, 3 * MS), ("fwd.attn", True, 2 * MS)]
    assert spans.other_ns == 0


def test_a_step_that_an_exception_ends_is_dropped_and_named() -> None:
    loop = Loop()
    loop.train(2)

    def interrupted() -> None:
        with loop.recorder.step():
            loop.work("fwd", 1 * MS, 1 * MS)
            with loop.recorder.phase("bwd"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert loop.recorder.where == "step 2, phase bwd"
    loop.recorder.drain()
    assert [spans.number for spans in loop.steps] == [0, 1]
    assert loop.marks.out == set()
    assert loop.ranges.open == set()
    loop.train(1)
    loop.recorder.drain()
    assert [spans.number for spans in loop.steps] == [0, 1, 3]


def test_an_exception_that_the_loop_catches_closes_its_phase_only() -> None:
    loop = Loop()

    def overflowing() -> None:
        with loop.recorder.phase("bwd"):
            loop.clock.advance(1 * MS)
            raise ValueError("overflow")

    with loop.recorder.step():
        with pytest.raises(ValueError, match="overflow"):
            overflowing()
        loop.work("opt", 1 * MS, 1 * MS)
    loop.recorder.drain()
    assert [(p.name, p.nested) for p in loop.steps[0].phases] == [("bwd", False), ("opt", False)]


def test_break_ends_a_step_like_any_other() -> None:
    loop = Loop()
    for number in range(5):
        with loop.recorder.step():
            loop.work("fwd", 1 * MS, 1 * MS)
            if number == 2:
                break
    loop.recorder.drain()
    assert len(loop.steps) == 3


def test_misuse_is_named() -> None:
    loop = Loop()
    with pytest.raises(UsageError, match="'fwd' outside a step: put it inside"):
        loop.work("fwd", 1, 1)
    with pytest.raises(UsageError, match="step 0 is still open"), loop.recorder.step():
        loop.recorder.begin_step()
    with pytest.raises(UsageError, match="letters, digits"):
        loop.recorder.phase("a/b")
    with pytest.raises(UsageError, match="neither 'step' nor 'other'"):
        loop.recorder.begin_phase("step")
    with pytest.raises(UsageError, match="no phase is open"):
        loop.recorder.end_phase()
    with pytest.raises(UsageError, match="no step is open"):
        loop.recorder.end_step()


def test_without_a_device_there_are_host_times_and_no_spans() -> None:
    loop = Loop(on_gpu=False)
    loop.train(2)
    loop.recorder.read()
    assert len(loop.steps) == 2  # nothing to wait for
    assert all(spans.span_ns is None and spans.other_span_ns is None for spans in loop.steps)
    assert loop.steps[0].wall_ns == 4 * MS


def test_short_steps_are_read_together_and_long_ones_with_the_next() -> None:
    short = Loop(on_gpu=False)
    short.train(HOLD_STEPS - 1)
    assert not short.steps
    short.train(1)
    assert [spans.number for spans in short.steps] == list(range(HOLD_STEPS))
    long = Loop(on_gpu=False)
    for read in (0, 2):
        with long.recorder.step():
            long.work("fwd", HOLD_NS, 0)
        assert len(long.steps) == read


def test_a_capture_takes_no_marks_and_leaves_the_span_unknown() -> None:
    loop = Loop()
    with loop.recorder.step():
        loop.work("fwd", 1 * MS, 1 * MS)
        loop.marks.capturing = True
        loop.work("capture", 1 * MS, 0)
        loop.marks.capturing = False
        loop.work("bwd", 1 * MS, 1 * MS)
    loop.recorder.drain()
    spans = {p.name: p.span_ns for p in loop.steps[0].phases}
    assert spans["capture"] is None
    assert spans["fwd"] is not None
    assert loop.steps[0].other_span_ns is None


class Counting:
    """An allocator whose counters move with every reading."""

    missing: str | None = None

    def __init__(self) -> None:
        self.read_ = 0

    def read(self) -> AllocatorCounters:
        self.read_ += 1
        return AllocatorCounters(10 * self.read_, 4096 * self.read_, 0, 0, 1 << 20)

    def reset_peak(self) -> None:
        raise AssertionError("the loop's own peak must not be reset")


def test_allocations_are_counted_at_step_borders_now_and_then() -> None:
    allocator = Counting()
    loop = Loop(allocator=allocator)
    loop.train(6)
    loop.recorder.drain()
    assert allocator.read_ == 6  # two readings in every second step
    assert [spans.memory is not None for spans in loop.steps] == [True, False] * 3
    memory = loop.steps[0].memory
    assert memory is not None
    assert (memory.allocs, memory.alloc_bytes) == (10, 4096)


def test_rows_are_one_a_phase_a_step_and_add_up() -> None:
    loop = Loop(allocator=Counting())
    loop.train(1)
    loop.recorder.drain()
    tables = tables_of(loop.steps, WHOLE)
    rows = [(key, Sample(**row)) for key, table in tables.items() for row in table.to_pylist()]
    walls = {key.phase: row.wall_ns for key, row in rows if row.repeat == "unprofiled"}
    assert list(walls) == ["fwd", "bwd", "opt", "other", "step"]
    assert sum(wall or 0 for phase, wall in walls.items() if phase != "step") == walls["step"]
    assert all(row.cell == key.id and row.index == row.step == 0 for key, row in rows)
    assert [row.allocs for _, row in rows if row.repeat == "alloc"] == [10]
    assert next(row.reserved_bytes for key, row in rows if key.phase == "step") == 1 << 20
