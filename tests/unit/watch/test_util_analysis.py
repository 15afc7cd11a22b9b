"""What is derived of a watch: figures, histogram, idle stretches, energy, the join with steps."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import paper_runs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from watch_parts import S, series

from kdaprof.analysis.util import BIN_EDGES, card_use, histogram
from kdaprof.analysis.util_document import CardView, WatchView
from kdaprof.analysis.util_join import busy_shares, inside, intervals_of, join
from kdaprof.analysis.util_readings import longest_idle_ns, readings_of
from kdaprof.report.gpu_util import markdown, terminal_lines
from kdaprof.report.gpu_util_picture import picture
from kdaprof.runs.samples import Sample
from kdaprof.runs.watch import WatchedCard, WatchRecord


def test_the_field_reports_142_of_180() -> None:
    use = card_use({"util": series([0.0] * 142 + [0.6] * 38)}, names={})
    share = use.facts["util_idle_share"]
    assert share.value == 142 / 180
    assert share.detail == "142 of 180 readings at ≤ 5 %"
    assert use.facts["util_mean"].value == pytest.approx(0.6 * 38 / 180)
    assert use.facts["util_p50"].value == 0.0
    assert use.facts["longest_idle_s"].value == 71.0
    assert use.percentiles["p90"] == 0.6
    assert use.histogram is not None
    assert use.histogram.counts[0] == 142


def test_missing_is_never_zero() -> None:
    use = card_use({"util": series([None, None]), "power_w": series([None])}, names={})
    for name in ("util_mean", "util_p50", "util_idle_share", "longest_idle_s", "power_w"):
        fact = use.facts[name]
        assert (fact.value, fact.missing, fact.detail) == (None, "not-supported", "not here"), name
    assert use.facts["sm_clock_hz"].detail == "never read"
    assert use.histogram is None
    assert use.percentiles == {}


def test_stale_repeats_are_time_and_no_observations() -> None:
    repeated = series([0.0, 0.0, 0.0, 1.0])
    repeated.stale[1:3] = True
    mean = card_use({"util": repeated}, names={}).facts["util_mean"]
    assert (mean.value, mean.n) == (
        0.25,
        2,
    )  # two observations, one of them three times as long


def test_the_finer_of_polling_and_buffer_speaks() -> None:
    fine = series([0.2] * 30, step_ns=S // 6)
    use = card_use({"util": series([0.9] * 10), "util_buffer": fine}, names={})
    assert use.facts["util_mean"].value == pytest.approx(0.2)
    assert "buffer" in (use.facts["util_mean"].detail or "")
    coarse = card_use({"util": series([0.9] * 100), "util_buffer": fine}, names={})
    assert coarse.facts["util_mean"].value == pytest.approx(0.9)


def test_energy_is_the_counters_and_else_the_integral_of_power() -> None:
    counter = {"energy_j": series([1000.0, 1100.0, 1300.0]), "power_w": series([9.0, 9.0, 9.0])}
    assert card_use(counter, names={}).facts["energy_j"].value == 300.0
    integral = card_use({"energy_j": series([None]), "power_w": series([100.0, 300.0, 300.0], step_ns=S)}, names={})
    assert integral.facts["energy_j"].value == 500.0
    assert integral.facts["energy_j"].provenance == "derived"
    assert card_use({"energy_j": series([None])}, names={}).facts["energy_j"].detail == "not here"


def test_a_gap_ends_an_idle_stretch() -> None:
    apart = replace(series([0.0] * 6), t_ns=np.array([0, 1, 2, 3, 20, 21], np.int64) * S)
    assert longest_idle_ns(readings_of(apart)) == 4 * S
    assert longest_idle_ns(readings_of(series([0.0, 0.05, 0.9, 0.0], step_ns=S))) == 2 * S
    assert longest_idle_ns(readings_of(None)) == 0


@given(st.lists(st.integers(0, 100), min_size=1, max_size=300))
def test_every_reading_is_in_the_bin_that_says_so(percents: list[int]) -> None:
    found = histogram(readings_of(series([percent / 100 for percent in percents])))
    assert sum(found.counts) == len(percents)
    for i, count in enumerate(found.counts):
        low, high = round(100 * BIN_EDGES[i]), round(100 * BIN_EDGES[i + 1])
        assert count == sum(low < p <= high or (i == 0 and p == 0) for p in percents)


def test_limits_and_processes() -> None:
    fields = {
        "limited": series([1.0, 0.0, 0.0, 0.0]),
        "reason:sw_power_cap": series([1.0]),
        "pid:7:used_bytes": series([3.0, 9.0]),
        "pid:7:util": series([0.2, 0.4]),
        "pid:8:used_bytes": series([None]),
    }
    use = card_use(fields, names={7: "python"})
    assert [(limit.reason, limit.share) for limit in use.limits] == [("sw_power_cap", 0.25)]
    assert use.facts["limited_share"].value == 0.25
    seven, eight = use.processes
    assert (seven.pid, seven.name, seven.used_bytes, seven.util) == (7, "python", 9, pytest.approx(0.3))
    assert (eight.pid, eight.name, eight.used_bytes, eight.util) == (8, None, None, None)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=12),
    st.lists(st.integers(-5, 80), max_size=30),
)
def test_inside_is_what_it_says_for_spans_that_overlap_too(spans: list[tuple[int, int]], times: list[int]) -> None:
    listed = sorted((start, start + length) for start, length in spans)
    found = inside(np.array(times, np.int64), listed)
    assert found.tolist() == [any(start <= t < end for start, end in listed) for t in times]


def test_samples_are_joined_to_phases() -> None:
    fields = {"util": series([0.0, 0.8] * 10, step_ns=S), "gpm_sm": series([0.4, 0.0] * 10, step_ns=S)}
    phases = [(k * S, (k + 1) * S, "fwd" if k % 2 else "data") for k in range(20)]
    data, fwd = join(fields, [*phases, (100 * S, 101 * S, "later")])[:2]
    assert (data.name, data.calls, data.span_ns, data.facts["util_mean"].value) == ("data", 10, 10 * S, 0.0)
    assert (fwd.name, fwd.facts["util_mean"].value, fwd.facts["gpm_sm"].value) == (
        "fwd", pytest.approx(0.8), pytest.approx(0.4),
    )  # fmt: skip
    assert not fwd.mixed
    short = join(fields, [(k * S, k * S + S // 10, "opt") for k in range(20)])[0]
    assert short.mixed
    later = join(fields, [(100 * S, 102 * S, "later")])[0]
    assert (later.facts["util_mean"].value, later.facts["util_mean"].detail) == (None, "no reading lies in it")


def test_the_first_second_of_a_long_loop_still_averages_what_was_before_it() -> None:
    fields = {"util": series([0.0] * 6 + [0.9] * 8), "gpm_sm": series([0.0] * 5 + [0.5] * 9)}
    loop = join(fields, [(2 * S, 7 * S, "tensor fwd")])[0]
    assert loop.facts["util_mean"].value == pytest.approx(0.9)
    assert loop.facts["gpm_sm"].value == pytest.approx(0.5)  # a difference of counters: nothing from before in it
    assert not loop.mixed


def test_a_probes_loops_are_the_intervals_and_else_its_steps_phase_by_phase() -> None:
    record, results = paper_runs.h200_run()
    cell = next(cell for cell in record.cells if cell.key.mode == "eager")
    timed = Sample(cell=cell.id, repeat="unprofiled", round=0, index=0, t_ns=5, wall_ns=3)
    loop = Sample(cell=cell.id, repeat="util", round=0, index=0, t_ns=100, wall_ns=50)
    name = f"{cell.key.path} {cell.key.phase}"
    assert intervals_of(record, {cell.id: [timed]}, offset_ns=1000) == [(1005, 1008, name)]
    assert intervals_of(record, {cell.id: [timed, loop]}) == [(100, 150, name)]
    step = replace(cell, key=replace(cell.key, workload="step", phase="bwd"))
    of_step = intervals_of(replace(record, cells=(step,)), {step.id: [timed]})
    assert of_step == [(5, 8, "bwd")]
    shares = busy_shares(record, results)
    assert shares
    for share in shares:
        facts = next(found.facts for found in results.cells if found.id == share.cell)
        assert share.share.value == facts["gpu_busy_ns"].value / facts["wall_ns"].value  # type: ignore[operator]
        assert share.share.quotable == (facts["gpu_busy_ns"].quotable and facts["wall_ns"].quotable)


def test_the_page_escapes_and_the_picture_of_a_long_watch_stays_small() -> None:
    values = [0.5 + 0.5 * (k % 2) for k in range(100_000)]
    fields = {"util": series(values, step_ns=10_000_000), "gpm_sm": series(values[:100])}
    card = WatchedCard(uuid="GPU-1", index=0, name="<script>H200", pci_bus_id=None)
    record = WatchRecord(
        tool="kdaprof 1", command=(), complete=True, hz=100, started_unix_ns=0, started_monotonic_ns=0,
        ended_unix_ns=0, ended_monotonic_ns=1000 * S, samples_due=100_001, samples_taken=100_000, own_cpu_ns=S,
        cards=(card,),
    )  # fmt: skip
    use = card_use(fields, names={})
    crossed = join({"gpm_sm": series([None, 0.4], step_ns=2 * S)}, [(S, 9 * S, "late")])
    seen = WatchView(
        record, (CardView(card, use, crossed, fields),), use.facts["util_mean"], use.facts["util_mean"], ()
    )
    svg = picture(seen)
    assert len(svg) < 100_000
    assert "<script>" not in svg
    ElementTree.fromstring(svg)
    text = markdown(seen)
    assert "| utilisation, mean | 75 %" in text
    assert "—" in text
    assert "gpm_sm 40 % (every reading crosses its borders: 50 % of what they cover is not its own)" in text
    assert any("75 % mean" in line for line in terminal_lines(seen))
