"""When enough has been measured: always after a bounded time, always with the criterion's name (cases 11, 12)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from probe_parts import Scene

from kdaprof.probe.plan import Effort
from kdaprof.probe.rounds import measure_rounds
from kdaprof.probe.series import Series
from kdaprof.probe.stopping import HALF_WIDTH_WANTED, wall_half_width, why_enough

EFFORT = Effort(rounds=3, rounds_most=4, samples=4, warmup=0, cell_seconds=60)
NARROW = "every wall interval is within ± 8%"


def measured(rounds: Sequence[Sequence[int | None]], path: str = "tensor") -> Series:
    series = Scene().series(path)
    for number, walls in enumerate(rounds):
        for wall in walls:
            series.add("unprofiled", number, 0, wall_ns=wall)
    return series


def steady(rounds: int = 3, path: str = "tensor") -> Series:
    return measured([[1000 + r, 1001 + r] for r in range(rounds)], path)


def wild(rounds: int = 3, path: str = "reference") -> Series:
    return measured([[1000 * 3**r] * 2 for r in range(rounds)], path)


def test_never_before_the_rounds_asked_for() -> None:
    assert why_enough([steady()], 2, 10**15, EFFORT) is None


def test_narrow_intervals_are_enough() -> None:
    assert why_enough([steady(), steady(path="reference")], 3, 0, EFFORT) == NARROW


def test_one_wide_interval_asks_for_more() -> None:
    assert why_enough([steady(), wild()], 3, 0, EFFORT) is None


def test_the_most_rounds_are_bounded_and_say_how_wide_it_still_is() -> None:
    text = why_enough([steady(), wild()], 12, 0, EFFORT)
    assert text is not None
    assert text.startswith("the most that are taken; the widest wall interval is still ± ")
    assert text.endswith("%")


def test_time_is_bounded_a_cell() -> None:
    cells = [steady(), wild()]
    limit = 2 * 60 * 10**9
    assert why_enough(cells, 4, limit, EFFORT) is None
    text = why_enough(cells, 4, limit + 1, EFFORT)
    assert text is not None
    assert text.startswith("out of time (60 s a cell); the widest wall interval is still ± ")


def test_one_round_has_no_interval_and_says_so() -> None:
    one = Effort(rounds=1, rounds_most=1)
    text = why_enough([measured([[5, 6, 7]])], 1, 0, one)
    assert text == "the most that are taken; the widest wall interval is not known: that takes 3 rounds"


@pytest.mark.parametrize("wall", [0, 1, 10**12])
def test_constant_samples_have_no_spread_and_divide_by_nothing(wall: int) -> None:
    series = measured([[wall] * 4] * 3)
    assert wall_half_width(series) == 0
    assert why_enough([series], 3, 0, EFFORT) == NARROW


def test_samples_without_a_wall_hold_nothing_up() -> None:
    assert why_enough([measured([[None], [None], [None]])], 3, 0, EFFORT) == NARROW
    assert why_enough([], 3, 0, EFFORT) == NARROW


def test_warm_up_and_other_repeats_do_not_count() -> None:
    series = steady()
    series.add("unprofiled", -1, 0, wall_ns=10**12)
    series.add("pipelined", 0, 0, wall_ns=10**12)
    assert wall_half_width(series) < HALF_WIDTH_WANTED


def test_the_width_alone_decides_not_the_value() -> None:
    small = measured([[100, 101], [102, 103], [101, 102]])
    large = measured([[100_000, 101_000], [102_000, 103_000], [101_000, 102_000]])
    assert wall_half_width(small) == pytest.approx(wall_half_width(large), rel=1e-6)


# ---------------------------------------------------------------- the rule in the loop


def rounds_of(scene: Scene, series: Series, effort: Effort = EFFORT) -> tuple[int, str]:
    numbers: list[int] = []

    def fail(_series: Series, error: Exception) -> None:
        raise AssertionError from error

    notes = measure_rounds([series], scene.bench, effort, after_round=numbers.append, on_failure=fail)
    return len(numbers), notes[-1]


def test_a_steady_cell_takes_the_rounds_asked_for() -> None:
    scene = Scene(kind="cpu")
    assert rounds_of(scene, scene.series()) == (3, f"plain/fwd: 3 rounds: {NARROW}")


def test_a_clock_that_stands_still_ends_too() -> None:
    scene = Scene(kind="cpu")
    assert rounds_of(scene, scene.series(host_ns=0, device_ns=0)) == (3, f"plain/fwd: 3 rounds: {NARROW}")


def test_a_drifting_cell_gets_more_rounds_until_they_agree() -> None:
    scene = Scene(kind="cpu")
    walls = [1_000_000] * 5 + [1_200_000] * 5 + [1_000_000] * 5  # three rounds of one call to settle and four samples
    taken, note = rounds_of(scene, scene.series(durations=[*walls, 1_010_000]))
    assert 3 < taken <= 12
    assert note == f"plain/fwd: {taken} rounds: {NARROW}"


def test_a_cell_that_never_converges_is_bounded_named_and_kept() -> None:
    scene = Scene(kind="cpu")
    chance = random.Random(0)
    series = scene.series(durations=[int(10 ** chance.uniform(3, 7)) for _ in range(200)])
    taken, note = rounds_of(scene, series)
    assert taken == 12
    assert "the most that are taken; the widest wall interval is still ±" in note
    assert len(series.samples) == 12 * 4


def test_a_cell_that_never_converges_and_is_slow_ends_by_time() -> None:
    scene = Scene(kind="cpu")
    series = scene.series(durations=[10**9 * 4**n for n in range(4) for _ in range(5)])
    taken, note = rounds_of(scene, series, Effort(rounds=3, rounds_most=4, samples=4, warmup=0, cell_seconds=5))
    assert taken == 3
    assert "out of time (5 s a cell)" in note
