"""Which cards are watched, whatever CUDA calls them (case 34); processes and the driver's buffer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from watch_parts import S

from kdaprof.errors import UnavailableError, UsageError
from kdaprof.instruments.clock import ClockPair
from kdaprof.instruments.fakes import FakeCard, FakePynvml, FakeSensor
from kdaprof.instruments.nvml import Nvml, open_nvml
from kdaprof.instruments.reading import Missing
from kdaprof.instruments.sensor import BufferedSample, GpuProcess, ProcessUtilisation
from kdaprof.instruments.watch.cards import choose
from kdaprof.instruments.watch.extras import BufferRows, EnergyRows, ProcessRows, ThrottleRows
from kdaprof.instruments.watch.pace import Budget, Pace, share_at
from kdaprof.instruments.watch.people import Family

CARDS = (
    FakeCard("GPU-aaaa-1", "00000000:01:00.0", name="H200"),
    FakeCard("GPU-bbbb-2", "00000000:02:00.0", name="H200"),
    FakeCard("GPU-bbcc-3", "00000000:82:00.0", name="H200"),
)


def nvml(*cards: FakeCard) -> Nvml:
    opened = open_nvml(lambda: FakePynvml(cards or CARDS)).value
    assert opened is not None
    return opened


@pytest.mark.parametrize(
    ("wanted", "uuids"),
    [
        ("2,0", ["GPU-bbcc-3", "GPU-aaaa-1"]),
        ("GPU-bbbb-2", ["GPU-bbbb-2"]),
        ("bbc", ["GPU-bbcc-3"]),
        ("0000:82:00.0", ["GPU-bbcc-3"]),
        ("82:00.0,82:00.0", ["GPU-bbcc-3"]),
        (None, ["GPU-aaaa-1", "GPU-bbbb-2", "GPU-bbcc-3"]),
    ],
)
def test_cards_by_number_uuid_or_place(wanted: str | None, uuids: list[str]) -> None:
    assert [card.uuid for card in choose(nvml(), wanted, {}).cards] == uuids


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("3", "no GPU 3"),
        ("bb", "more than one card"),
        ("zz", "no card"),
        (",", "nothing named"),
        ("MIG-x", "no card MIG-x"),
    ],
)
def test_cards_that_are_not_there(wanted: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        choose(nvml(), wanted, {})


@pytest.mark.parametrize(
    ("mask", "uuids"),
    [("GPU-bbcc", ["GPU-bbcc-3"]), ("1", ["GPU-bbbb-2"]), ("2,1", ["GPU-bbcc-3", "GPU-bbbb-2"])],
)
def test_what_cuda_may_see_is_watched(mask: str, uuids: list[str]) -> None:
    chosen = choose(nvml(), None, {"CUDA_VISIBLE_DEVICES": mask})
    assert [card.uuid for card in chosen.cards] == uuids
    assert chosen.notes == ()


def test_numbers_of_cuda_are_not_taken_for_numbers_of_nvml_where_they_may_differ() -> None:
    mixed = nvml(FakeCard("GPU-1", "00000000:01:00.0", name="T4"), FakeCard("GPU-2", "00000000:02:00.0", name="H200"))
    unsure = choose(mixed, None, {"CUDA_VISIBLE_DEVICES": "0"})
    assert len(unsure.cards) == 2
    assert "CUDA's own order" in unsure.notes[0]
    sure = choose(mixed, None, {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert [card.uuid for card in sure.cards] == ["GPU-1"]
    assert [c.uuid for c in choose(mixed, "1", {"CUDA_VISIBLE_DEVICES": "0"}).cards] == ["GPU-2"]


def test_a_mig_instance_of_the_mask_is_watched() -> None:
    with_mig = nvml(*CARDS, FakeCard("MIG-cccc", "00000000:01:00.0"))
    chosen = choose(with_mig, None, {"CUDA_VISIBLE_DEVICES": "MIG-cccc"})
    assert [(card.uuid, card.index) for card in chosen.cards] == [("MIG-cccc", None)]


@pytest.mark.parametrize("mask", ["", "-1", "GPU-zzzz"])
def test_a_mask_that_names_nothing_watches_all_and_says_so(mask: str) -> None:
    chosen = choose(nvml(), None, {"CUDA_VISIBLE_DEVICES": mask})
    assert len(chosen.cards) == 3
    assert "all" in chosen.notes[0]


def test_no_card_is_an_unfit_machine() -> None:
    empty = open_nvml(lambda: FakePynvml([])).value
    assert empty is not None
    with pytest.raises(UnavailableError, match="sees no GPU"):
        choose(empty, None, {})


def test_one_bad_card_keeps_its_place() -> None:
    module = FakePynvml(CARDS)
    module.lose("GPU-bbbb-2")
    opened = open_nvml(lambda: module).value
    assert opened is not None
    cards = choose(opened, None, {}).cards
    assert [(card.index, card.device.value is None) for card in cards] == [(0, False), (1, True), (2, False)]
    assert "lost" in (cards[1].device.reason or "")


def test_processes_are_read_once_a_second_and_filtered() -> None:
    sensor = FakeSensor()
    sensor.values["processes"] = (GpuProcess(10, 5), GpuProcess(11, None), GpuProcess(12, 7))
    sensor.values["process_utilisation"] = (ProcessUtilisation(10, 0.5),)
    people = ProcessRows(sensor, lambda pid: pid != 12, {10: "python"}.get, pace=Pace(0.001), shares=slow(2))
    rows = [row for t in range(0, 2 * S, S // 2) for row in people.rows(t)]
    assert [(r.field, r.value) for r in rows[:4]] == [
        ("processes", 3.0), ("pid:10:used_bytes", 5.0), ("pid:10:util", 0.5), ("pid:11:used_bytes", None),
    ]  # fmt: skip
    # The list again a second later; the shares not yet: asking for them takes 2 ms.
    assert [r.field for r in rows[4:]] == ["processes", "pid:10:used_bytes", "pid:11:used_bytes"]
    assert people.names == {10: "python", 11: None}


def slow(ms: int, share: float | None = 0.0005) -> Pace:
    """The pace of a reading that takes `ms` of CPU time."""
    cpu = iter(range(0, 10**12, ms * 1_000_000))
    return Pace(share, cpu_ns=lambda: next(cpu))


def test_a_dear_reading_is_taken_less_often() -> None:
    people = ProcessRows(FakeSensor(), pace=slow(2))
    assert [t // S for t in range(0, 20 * S, S) if people.rows(t)] == [0, 4, 8, 12, 16]
    people = ProcessRows(FakeSensor(), pace=slow(80))
    assert [t // S for t in range(0, 300 * S, S) if people.rows(t)] == [0, 120, 240]


def test_dear_readings_wait_while_the_whole_watch_is_over_its_budget() -> None:
    spent = 0
    budget = Budget(0.002, lambda: spent)
    pace = Pace(None, budget=budget, cpu_ns=lambda: 0)
    taken = []
    for t in range(0, 20 * S, S):
        spent += 3_000_000 if t < 5 * S else 1_000_000
        if pace.begins(t):
            taken.append(t // S)
            pace.ends(t)
    # 12 ms in the first 4 s, then 1 ms a second: within 2 ms a second from the eighth on.
    assert taken == [0, *range(8, 20)]
    assert pace.begins(20 * S, last=True)


def test_what_the_end_of_a_watch_will_cost_is_set_aside() -> None:
    spent = 0
    budget = Budget(0.002, lambda: spent)
    pace = Pace(None, budget=budget, cpu_ns=lambda: spent)
    taken = []
    for t in range(0, 20 * S, S):
        spent += 1_000_000
        if pace.begins(t):
            taken.append(t // S)
            spent += 4_000_000
            pace.ends(t)
    pace.begins(20 * S, last=True)
    spent += 4_000_000
    # 1 ms a second and 4 ms a reading: within 2 ms a second with that reading and the last one in it.
    assert taken == [0, 12, 16]
    assert spent <= 0.002 * 20 * S


def test_a_watch_that_never_comes_within_its_budget_still_takes_dear_readings_now_and_then() -> None:
    spent = iter(range(0, 10**15, 10**9))
    pace = Pace(0.001, budget=Budget(0.002, lambda: next(spent)), cpu_ns=lambda: 0)
    taken = [t // S for t in range(0, 300 * S, S) if pace.begins(t)]
    assert taken == [0, 121, 242]


def test_a_reading_gets_more_of_a_core_where_more_samples_were_asked_for() -> None:
    assert share_at(0.0001, 0.5) == share_at(0.0001, 2) == 0.0001
    assert share_at(0.0001, 100) == pytest.approx(0.005)


def test_energy_is_read_at_both_ends_and_a_card_without_a_counter_says_so_once() -> None:
    sensor = FakeSensor()
    energy = EnergyRows(sensor, slow(4))
    taken = [t // S for t in range(0, 20 * S, S) if energy.rows(t)]
    assert taken == [0, 8, 16]
    assert [r.field for r in energy.rows(17 * S, last=True)] == ["energy_j"]
    sensor.fail("not-supported", "no counter", "energy_j")
    without = EnergyRows(sensor, slow(4))
    assert [(r.value, r.missing) for t in range(3) for r in without.rows(t * S, last=t == 2)] == [(None, "no counter")]


def test_limits_are_told_from_states() -> None:
    sensor = FakeSensor()
    sensor.values["throttle_reasons"] = ("gpu_idle",)
    assert [(r.field, r.value) for r in ThrottleRows(sensor).rows(0)] == [("limited", 0.0), ("reason:gpu_idle", 1.0)]
    sensor.values["throttle_reasons"] = Missing("not-supported", "no such field")
    assert [(r.field, r.value, r.missing) for r in ThrottleRows(sensor).rows(0)] == [("limited", None, "no such field")]


def test_the_drivers_buffer_is_read_in_its_own_time_and_each_sample_once() -> None:
    sensor = FakeSensor()
    pair = ClockPair(monotonic_ns=0, unix_ns=1000 * S, uncertainty_ns=0)
    entries = [BufferedSample(1000 * S + k * S // 10, k / 100) for k in range(-5, 30)]
    rows = BufferRows(sensor, pair, pace=Pace(None))
    found = []
    for t in range(0, 3 * S, S // 2):
        sensor.values["buffered"] = tuple(entry for entry in entries if entry.unix_ns <= 1000 * S + t)
        found += rows.rows(t)
    assert [r.t_ns for r in found] == [k * S // 10 for k in range(1, 21)]
    assert [r.value for r in found] == [k / 100 for k in range(1, 21)]


def test_a_card_without_a_buffer_says_so_once() -> None:
    rows = BufferRows(FakeSensor(), ClockPair(0, 1000 * S, 0))
    found = [row for t in range(0, 5 * S, S) for row in rows.rows(t)]
    assert [(r.field, r.value, r.missing) for r in found] == [("util_buffer", None, "no buffer on this card")]


def test_a_clock_of_another_world_in_the_buffer_is_left_out() -> None:
    sensor = FakeSensor()
    sensor.values["buffered"] = (BufferedSample(9 * 10**18, 0.5),)
    assert BufferRows(sensor, ClockPair(0, 1000 * S, 0)).rows(0) == []


def test_a_family_is_a_process_and_what_it_started() -> None:
    nested = f"import subprocess, sys; subprocess.run([{sys.executable!r}, '-c', 'print(1, flush=True); input()'])"
    child = subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    try:
        family = Family(child.pid)
        import psutil

        grandchild = psutil.Process(child.pid).children()[0].pid
        assert family.holds(child.pid)
        assert family.holds(grandchild)
        assert not family.holds(os.getpid())
        assert family.alive()
    finally:
        child.communicate(b"\n")
    assert not family.alive()
    with pytest.raises(UsageError, match="no such process"):
        Family(child.pid)
