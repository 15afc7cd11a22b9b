"""GPM figures are weighed by the time that each covers, and one that crosses a border is not given to one side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from watch_parts import S, series

from kdaprof.analysis.util import card_use
from kdaprof.analysis.util_covered import covered, covered_inside
from kdaprof.analysis.util_join import join
from kdaprof.runs.util_file import FieldSeries


def gpm(*readings: tuple[float, float | None]) -> FieldSeries:
    """Readings at times (s)."""
    made = series([value for _, value in readings])
    return replace(made, t_ns=np.array([round(t * S) for t, _ in readings], np.int64))


def test_the_mean_and_its_spread_are_weighed_by_time() -> None:
    # Nine readings of 0.1 s at 0.9, one of 9.1 s at 0.1: by reading 0.82, in truth 0.172.
    often = [(0.1 * k, 0.9) for k in range(1, 10)]
    fields = {"gpm_sm": gpm((0, None), *often, (10, 0.1)), "gpm_pcie_rx_bytes_per_s": gpm((0, None), (1, 8e9), (5, 0))}
    facts = card_use(fields, names={}, began_ns=0).facts
    sm = facts["gpm_sm"]
    assert sm.value == pytest.approx(0.172)
    assert (sm.n, sm.min, sm.max, sm.p10, sm.p90) == (10, 0.1, 0.9, 0.1, 0.1)
    assert "cover 10.0 s" in (sm.detail or "")
    assert facts["gpm_pcie_rx"].value == pytest.approx(1.6e9)


def test_what_a_missing_reading_covered_is_not_given_to_the_next() -> None:
    facts = card_use({"gpm_sm": gpm((0, None), (1, 0.8), (9, None), (10, 0.2))}, names={}).facts
    assert facts["gpm_sm"].value == pytest.approx(0.5)


def test_the_first_reading_of_an_older_watch_covers_what_was_since_its_start_and_else_nothing() -> None:
    older = gpm((4, 0.9), (5, 0.1))
    assert card_use({"gpm_sm": older}, names={}, began_ns=3 * S).facts["gpm_sm"].value == pytest.approx(0.5)
    assert card_use({"gpm_sm": older}, names={}).facts["gpm_sm"].value == pytest.approx(0.1)
    assert card_use({"gpm_sm": gpm((4, 0.9))}, names={}).facts["gpm_sm"].value == pytest.approx(0.9)
    assert card_use({"gpm_sm": gpm((4, None))}, names={}).facts["gpm_sm"].missing is not None


def test_a_reading_across_a_border_is_left_out_and_said() -> None:
    # A loop from 2 s to 7 s: the reading of 1.5 to 2.5 s is half of what was before it.
    fields = {"gpm_sm": gpm((0, None), (1.5, 0.0), (2.5, 0.4), (4.5, 0.8), (6.5, 0.8), (8, 0.2))}
    (loop,) = join(fields, [(2 * S, 7 * S, "fused fwd")])
    assert loop.facts["gpm_sm"].value == pytest.approx(0.8)
    assert (loop.facts["gpm_sm"].n, loop.facts["gpm_sm"].detail) == (2, "2 readings left out that cross its borders")


def test_where_every_reading_crosses_a_border_they_are_shared_by_time_and_said() -> None:
    # Steps of 1 s, forward then backward in halves; readings of 2 s cover both.
    fields = {"gpm_sm": gpm((0, None), (2, 0.4), (4, 0.6))}
    halves = [(k * S // 2, (k + 1) * S // 2, "bwd" if k % 2 else "fwd") for k in range(8)]
    steps = [(k * S, (k + 1) * S, "step") for k in range(4)]
    fwd, step, bwd = join(fields, [*halves, *steps])
    for phase in (fwd, bwd):
        assert phase.facts["gpm_sm"].value == pytest.approx(0.5)
        assert "50 % of what they cover is not its own" in (phase.facts["gpm_sm"].detail or "")
    # The steps follow one another, so that what lies across two of them is theirs.
    assert (step.facts["gpm_sm"].value, step.facts["gpm_sm"].detail) == (pytest.approx(0.5), None)
    (late,) = join(fields, [(3 * S + S // 2, 9 * S, "late")])
    assert late.facts["gpm_sm"].value == pytest.approx(0.6)
    (never,) = join(fields, [(5 * S, 9 * S, "never")])
    assert (never.facts["gpm_sm"].value, never.facts["gpm_sm"].detail) == (None, "no reading lies in it")


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=10),
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 10)), min_size=1, max_size=12),
)
def test_shared_by_time_is_what_counting_each_moment_gives(
    spans: list[tuple[int, int]], readings: list[tuple[int, int]]
) -> None:
    listed = sorted((start, start + length) for start, length in spans)
    ends = np.cumsum([length for length, _ in readings])
    of_series = replace(series([value / 10 for _, value in readings]), t_ns=ends.astype(np.int64))
    found = covered_inside(covered(of_series, 0), listed, "fraction")
    moments: list[list[float]] = []
    for end, (length, value) in zip(ends.tolist(), readings, strict=True):
        held = [value / 10 for t in range(end - length, end) if any(a <= t < b for a, b in listed)]
        moments.append(held)
    whole = [held for held, (length, _) in zip(moments, readings, strict=True) if len(held) == length]
    counted = [value for held in (whole or moments) for value in held]
    assert (found.value is None) == (not counted)
    if counted:
        assert found.value == pytest.approx(np.mean(counted))
