"""Where the level of a figure changes over runs: seen when it does, not seen when it does not."""

from __future__ import annotations

import numpy as np
import pytest
import scenes

from kdaprof.analysis.history import POINTS_MIN, Series, Wanted, series_of
from kdaprof.runs.facts import Reason
from kdaprof.runs.history_rows import Entry, Stamp

MS = 1_000_000


def stamp(number: int) -> Stamp:
    return Stamp(
        run=f"run-{number}", recorded_unix_ns=0, started_unix_ns=number, complete=True, tool="kdaprof 0.1.0",
        commit=None, dirty=None, machine="m", torch=None, triton=None, driver=None, directory=None,
    )  # fmt: skip


def history(values: list[float], refused: tuple[int, ...] = ()) -> Series:
    cell = scenes.key().id
    entries = []
    for number, value in enumerate(values):
        fact = scenes.figure(value * MS)
        if number in refused:
            fact = fact.refuse(Reason("Q01", "step 0"))
        entries.append(Entry(stamp=stamp(number), cell=cell, name="wall_ns", fact=fact))
    (series,) = series_of(entries, {}, Wanted())
    return series


def noisy(levels: list[tuple[float, int]], seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    return [float(level * np.exp(rng.normal(0, 0.01))) for level, count in levels for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_a_step_of_a_fifth_is_found_where_it_is(seed: int) -> None:
    found = history(noisy([(100, 8), (120, 6), (90, 7)], seed)).changes
    assert [change.run for change in found] == ["run-8", "run-14"]
    assert [change.ratio for change in found] == pytest.approx([1.2, 0.75], rel=0.03)


def test_noise_alone_seldom_makes_a_level() -> None:
    false = sum(bool(history(noisy([(100, 20)], seed)).changes) for seed in range(200))
    assert false <= 20


def test_refused_figures_are_shown_and_establish_nothing() -> None:
    series = history([500, 100, 101, 99, 100], refused=(0,))
    assert len(series.points) == 5
    assert series.changes == ()
    assert history([500, 100, 101, 99, 100]).changes[0].run == "run-1"


def test_few_points_are_no_trend() -> None:
    series = history([100, 300, 100][: POINTS_MIN - 1])
    assert series.changes == ()
    assert series.why == "3 quotable figures; a change of level needs 4"
