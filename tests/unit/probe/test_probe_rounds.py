"""The timed part in fake time: order, indices, budgets, and what is never inside a sample."""

from __future__ import annotations

from dataclasses import replace

import pytest
from probe_parts import FakeAllocator, PaperCase, Scene, key

from kdaprof.instruments.allocator import NoAllocator
from kdaprof.probe.plan import Effort
from kdaprof.probe.rounds import (
    WARMUP_ROUND,
    allocator_repeats,
    event_repeats,
    measure_rounds,
    one_sample,
    warm_up,
)
from kdaprof.probe.series import Series
from kdaprof.probe.sustained import sustained
from kdaprof.runs.samples import Sample
from kdaprof.runs.util import UtilReading

EFFORT = Effort(rounds=3, rounds_most=1, samples=4, warmup=3, burst=5)


def measure(scene: Scene, *group: Series, effort: Effort = EFFORT) -> tuple[str, ...]:
    return measure_rounds(group, scene.bench, effort, after_round=lambda _: None, on_failure=_never)


def _never(series: Series, error: Exception) -> None:
    raise AssertionError(f"{series.key.id} was not to fail") from error


def of(series: Series, repeat: str) -> list[Sample]:
    return [s for s in series.samples if s.repeat == repeat]


# ---------------------------------------------------------------- series


def test_an_index_counts_within_its_kind_of_repeat() -> None:
    series = Scene().series()
    for repeat in ("unprofiled", "events", "unprofiled", "alloc", "events", "unprofiled"):
        series.add(repeat, 0, 10)
    assert [(s.repeat, s.index) for s in series.samples] == [
        ("unprofiled", 0),
        ("events", 0),
        ("unprofiled", 1),
        ("alloc", 0),
        ("events", 1),
        ("unprofiled", 2),
    ]
    assert {s.cell for s in series.samples} == {series.key.id}
    assert all(s.load1 is not None for s in series.samples)


def test_what_was_not_read_is_none() -> None:
    series = Scene().series()
    series.add("unprofiled", 0, 10)
    sample = series.samples[0]
    assert (sample.host_ns, sample.wall_ns, sample.gpu_span_ns, sample.allocs, sample.sm_clock_hz) == (None,) * 5


def test_the_last_sample_takes_what_was_read_behind_it() -> None:
    series = Scene().series()
    series.add("unprofiled", 0, 10, wall_ns=5)
    series.add("unprofiled", 0, 20, wall_ns=6)
    series.relabel_last(reserved_bytes=77)
    assert [(s.wall_ns, s.reserved_bytes) for s in series.samples] == [(5, None), (6, 77)]


# ---------------------------------------------------------------- one sample


def test_a_sample_holds_the_call_and_nothing_of_its_preparation() -> None:
    scene = Scene()
    series = scene.series(host_ns=1_000, device_ns=5_000)
    one_sample(series, scene.bench, 2)
    (sample,) = series.samples
    assert (sample.host_ns, sample.wall_ns) == (1_000, 6_000)
    assert (sample.repeat, sample.round, sample.index, sample.sm_clock_hz) == ("unprofiled", 2, 0, 1_980_000_000)


def test_input_sets_rotate_from_call_to_call() -> None:
    scene = Scene()
    series = scene.series()
    for _ in range(3):
        one_sample(series, scene.bench, 0)
    assert isinstance(series.case, PaperCase)
    assert series.case.prepared == [0, 1, 2]


# ---------------------------------------------------------------- warm-up


def test_warm_up_is_kept_from_step_0_on() -> None:
    scene = Scene()
    series = scene.series(durations=[900_000, 80_000, 5_000])
    warm_up(series, scene.bench, EFFORT)
    kept = of(series, "unprofiled")
    assert [(s.index, s.round) for s in kept] == [(0, WARMUP_ROUND), (1, WARMUP_ROUND), (2, WARMUP_ROUND)]
    assert [s.wall_ns for s in kept] == [901_000, 81_000, 6_000]
    measure(scene, series)
    assert [s.index for s in of(series, "unprofiled")] == list(range(3 + 3 * 4))


def test_warm_up_ends_when_a_call_takes_the_cells_time() -> None:
    scene = Scene()
    series = scene.series(device_ns=40_000_000_000)
    warm_up(series, scene.bench, Effort(warmup=10, cell_seconds=60))
    assert len(series.samples) == 2
    assert not of(series, "pipelined")


def test_warm_up_ends_with_a_burst_that_fills_the_pool() -> None:
    scene = Scene()
    series = scene.series()
    warm_up(series, scene.bench, EFFORT)
    assert (series.samples[-1].repeat, series.samples[-1].round) == ("pipelined", WARMUP_ROUND)


# ---------------------------------------------------------------- rounds


def test_a_round_is_a_b_b_a_and_which_opens_is_drawn() -> None:
    scene = Scene(kind="cpu")
    a, b, c = (scene.series(path) for path in ("tensor", "compiled", "reference"))
    measure(scene, a, b, c, effort=replace(EFFORT, rounds=12, samples=2))
    calls = "".join(name[0] for name in scene.log[::2])  # one to settle and one sample a turn
    rounds = [calls[at : at + 6] for at in range(0, len(calls), 6)]
    assert len(rounds) == 12
    assert set(rounds) == {"tcrrct", "rcttcr"}
    assert rounds != [rounds[0], rounds[1]] * 6  # not turn by turn


@pytest.mark.parametrize("samples", [1, 2, 3, 5])
def test_the_turns_of_a_round_share_its_samples(samples: int) -> None:
    scene = Scene(kind="cpu")
    a, b = scene.series("tensor"), scene.series("reference")
    measure(scene, a, b, effort=replace(EFFORT, rounds=3, samples=samples))
    for series in (a, b):
        assert [s.round for s in series.samples] == [number for number in range(3) for _ in range(samples)]
        assert [s.reserved_bytes is not None for s in series.samples] == [
            index % samples == samples - 1 and scene.bench.allocator.read() is not None for index in range(3 * samples)
        ]


def test_a_linear_drift_of_the_host_falls_on_both_alike() -> None:
    """Each call is a little slower than the one before it, whichever cell makes it: A B B A gives no winner."""
    scene = Scene(kind="cpu")
    a, b = scene.series("tensor"), scene.series("reference")
    slower = iter(range(10_000, 10**6, 100))

    def drifting() -> None:
        scene.device.launch(0, next(slower))

    a.case.run = b.case.run = drifting
    measure(scene, a, b, effort=replace(EFFORT, rounds=4))
    mean_a, mean_b = (sum(s.wall_ns or 0 for s in series.samples) / len(series.samples) for series in (a, b))
    assert abs(mean_a / mean_b - 1) < 1e-3


def test_rounds_hold_their_number_of_samples_and_a_call_to_settle_a_turn() -> None:
    scene = Scene(kind="cpu")
    series = scene.series()
    measure(scene, series)
    assert [s.round for s in series.samples] == [0] * 4 + [1] * 4 + [2] * 4
    assert len(scene.log) == 3 * (4 + 2)


def test_slow_cells_get_fewer_samples_never_below_two_and_it_is_noted() -> None:
    scene = Scene(kind="cpu")
    slow = scene.series("reference", device_ns=3_000_000_000)
    slower = scene.series("tensor-rows", device_ns=90_000_000_000)
    quick = scene.series("tensor")
    effort = Effort(rounds=2, rounds_most=1, samples=20, warmup=1, cell_seconds=60)
    for series in (slow, slower, quick):
        warm_up(series, scene.bench, effort)
    notes = measure(scene, slow, slower, quick, effort=effort)
    assert [sum(s.round == 0 for s in series.samples) for series in (slow, slower, quick)] == [9, 2, 20]
    assert [note for note in notes if "instead of" in note] == [
        f"{slow.key.id}: 9 samples a round instead of 20: one call takes too long",
        f"{slower.key.id}: 2 samples a round instead of 20: one call takes too long",
    ]


def test_bursts_let_the_host_run_ahead() -> None:
    scene = Scene()
    series = scene.series(host_ns=4_000, device_ns=5_000)
    measure(scene, series)
    bursts = of(series, "pipelined")
    assert [(s.round, s.calls) for s in bursts] == [(0, 5), (1, 5), (2, 5)]
    assert all(s.wall_ns == 4_000 + 5 * 5_000 for s in bursts)


@pytest.mark.parametrize(
    ("kind", "phase", "mode"), [("cpu", "fwd", "eager"), ("cuda", "bwd", "eager"), ("cuda", "fwd", "graph")]
)
def test_no_burst_where_nothing_can_run_ahead(kind: str, phase: str, mode: str) -> None:
    scene = Scene(kind=kind)
    series = scene.series(phase=phase, mode=mode)
    warm_up(series, scene.bench, EFFORT)
    measure(scene, series)
    assert not of(series, "pipelined")


def test_bursts_of_slow_calls_are_short() -> None:
    scene = Scene()
    series = scene.series(device_ns=140_000_000)
    warm_up(series, scene.bench, EFFORT)
    assert [s.calls for s in of(series, "pipelined")] == [2]


def test_reserved_memory_is_marked_at_the_border_of_each_round() -> None:
    scene = Scene()
    series = scene.series()
    scene.allocator.reserved_bytes = 100

    def grow(_number: int) -> None:
        scene.allocator.reserved_bytes += 1

    measure_rounds([series], scene.bench, EFFORT, after_round=grow, on_failure=_never)
    marks = [(s.round, s.index % 4, s.reserved_bytes) for s in of(series, "unprofiled") if s.reserved_bytes is not None]
    assert marks == [(0, 3, 100), (1, 3, 101), (2, 3, 102)]


def test_a_cell_that_breaks_leaves_its_samples_and_the_others_go_on() -> None:
    scene = Scene(kind="cpu")
    good, bad = scene.series("tensor"), scene.series("reference", fail_at=8)
    failed: list[tuple[Series, Exception]] = []
    rounds: list[int] = []
    notes = measure_rounds(
        [good, bad],
        scene.bench,
        EFFORT,
        after_round=rounds.append,
        on_failure=lambda series, error: failed.append((series, error)),
    )
    assert [(series.key.path, str(error)) for series, error in failed] == [("reference", "reference broke in call 8")]
    assert len(good.samples) == 12
    assert [s.round for s in bad.samples] == [0, 0, 0, 0, 1]
    assert rounds == [0, 1, 2]
    assert notes[-1].startswith("plain/fwd: 3 rounds: ")
    assert not scene.ranges.open


def test_the_note_of_a_step_names_its_size() -> None:
    """A sweep has one for each size."""
    scene = Scene(kind="cpu")
    series = scene.series("tensor")
    series.key = replace(series.key, phase="step", shape=(("B", 2), ("T", 64)))
    notes = measure_rounds([series], scene.bench, EFFORT, after_round=lambda _: None, on_failure=lambda *_: None)
    assert notes[-1].startswith("plain/step/B2-T64: 3 rounds: ")


def test_rounds_end_when_every_cell_is_broken() -> None:
    scene = Scene(kind="cpu")
    bad = scene.series(fail_at=0)
    rounds: list[int] = []
    notes = measure_rounds([bad], scene.bench, EFFORT, after_round=rounds.append, on_failure=lambda *_: None)
    assert (rounds, notes) == ([0], ())


def test_no_cells_no_rounds() -> None:
    scene = Scene()
    assert measure(scene) == ()


def test_ctrl_c_is_no_failure_of_a_cell() -> None:
    scene = Scene(kind="cpu")
    series = scene.series()

    def interrupt(_number: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_rounds([series], scene.bench, EFFORT, after_round=interrupt, on_failure=_never)
    assert not scene.ranges.open


def test_each_turn_of_a_cell_is_a_range() -> None:
    scene = Scene(kind="cpu")
    a, b = scene.series("tensor"), scene.series("reference")
    measure(scene, a, b, effort=replace(EFFORT, rounds=2))
    started = scene.ranges.started
    assert sorted(started) == sorted([(series.key.id, "cell", number) for series in (a, b) for number in (0, 1)] * 2)
    assert [(payload, name == started[0][0]) for name, _, payload in started[:4]] == [
        (0, True),
        (0, False),
        (0, False),
        (0, True),
    ]
    assert not scene.ranges.open


# ---------------------------------------------------------------- beside the rounds


def test_device_spans_are_executions_of_their_own() -> None:
    scene = Scene()
    series = scene.series(device_ns=7_000)
    event_repeats(series, scene.bench, Effort(events=2))
    assert [(s.repeat, s.gpu_span_ns, s.wall_ns, s.host_ns) for s in series.samples] == [
        ("events", 8_000, None, None)
    ] * 2


def test_without_a_device_there_is_no_span() -> None:
    scene = Scene(kind="cpu")
    series = scene.series()
    event_repeats(series, scene.bench, Effort())
    assert not series.samples


def test_allocations_of_one_call() -> None:
    scene = Scene()
    series = scene.series()
    allocator_repeats(series, scene.bench, Effort(allocator=2))
    assert [(s.repeat, s.allocs, s.alloc_bytes, s.peak_bytes) for s in series.samples] == [
        ("alloc", 2, 1024, 1024),
        ("alloc", 2, 1024, 2048),
    ]
    assert all(s.wall_ns is None for s in series.samples)
    assert isinstance(scene.allocator, FakeAllocator)
    assert scene.allocator.peak_resets == 2


def test_an_allocator_that_counts_nothing_leaves_nothing() -> None:
    scene = Scene(kind="cpu", allocator=NoAllocator("none here"))
    series = scene.series()
    allocator_repeats(series, scene.bench, Effort())
    assert not series.samples
    measure(scene, series)
    assert all(s.reserved_bytes is None for s in series.samples)


def reading() -> UtilReading:
    return UtilReading(t_ns=1, uuid=None, field="util", value=0.5, stale=False, missing=None)


def test_the_sustained_loop_runs_for_its_time_and_counts_its_calls() -> None:
    def watch(loop):  # type: ignore[no-untyped-def]
        loop()
        return (reading(),)

    scene = Scene(sample_while=watch)
    series = scene.series(host_ns=1_000_000, device_ns=99_000_000)
    assert sustained(series, scene.bench, Effort(util_seconds=1)) == (reading(),)
    (sample,) = series.samples
    assert (sample.repeat, sample.calls) == ("util", 10)
    assert sample.wall_ns is not None
    assert sample.wall_ns >= 1_000_000_000


@pytest.mark.parametrize(("phase", "seconds", "watched"), [("bwd", 1.0, True), ("fwd", 0.0, True), ("fwd", 1.0, False)])
def test_no_sustained_loop(phase: str, seconds: float, watched: bool) -> None:
    scene = Scene(sample_while=(lambda _loop: (reading(),)) if watched else None)
    series = scene.series(phase=phase)
    assert sustained(series, scene.bench, Effort(util_seconds=seconds)) == ()
    assert (series.samples, scene.log) == ([], [])


def test_cells_of_these_tests_are_what_they_say() -> None:
    assert key("reference", "bwd").id == "kda/reference/plain/eager/bwd/B1-T20-H1-K16-V16-C16/float32"
