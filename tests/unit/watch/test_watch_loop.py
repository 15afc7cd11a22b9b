"""The loop over cards: due times, lateness, lost cards; an hour and eight cards at 100 Hz, in virtual time."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from watch_parts import Kept, S, WorkingClock, sensors, waiter

from kdaprof.errors import UsageError
from kdaprof.instruments.fakes import FakeClock, FakeSensor
from kdaprof.instruments.reading import Missing
from kdaprof.instruments.sensor import Utilisation
from kdaprof.instruments.watch.extras import EnergyRows, ProcessRows, ThrottleRows
from kdaprof.instruments.watch.loop import SampleLoop
from kdaprof.instruments.watch.pace import Pace
from kdaprof.instruments.watch.spool import Spool
from kdaprof.instruments.watch.taker import SampleTaker
from kdaprof.runs.atomic import TargetError
from kdaprof.runs.util import UtilReading
from kdaprof.runs.util_file import UtilFile


def loop_over(cards: list[FakeSensor], clock: FakeClock, hz: float, sink: Kept, **more: object) -> SampleLoop:
    takers = [SampleTaker(card) for card in cards]
    return SampleLoop(takers, clock, hz, sink, **({"wait": waiter(clock)} | more))  # type: ignore[arg-type]


def test_samples_stand_at_their_due_times_and_the_duration_holds() -> None:
    clock, kept = FakeClock(), Kept()
    loop = loop_over(sensors(2), clock, 3, kept, duration_ns=2 * S)
    loop.run()
    start = loop.start_ns
    assert [t - start for t, _ in kept.ticks] == [round(k * 1e9 / 3) for k in range(7)]
    assert (loop.taken, loop.due, loop.end_ns) == (7, 7, start + 2 * S)
    assert all(late == 0 for _, late in kept.ticks)
    assert {r.uuid for r in kept.rows} == {"GPU-0", "GPU-1"}


def test_a_slow_card_makes_samples_late_and_the_next_ones_are_back_in_step() -> None:
    clock, kept = FakeClock(), Kept()

    class Slow(FakeSensor):
        def memory(self):  # type: ignore[no-untyped-def]
            clock.advance(round(0.55 * S) if clock.time_ns - 1_000_000 < S // 10 else 0)
            return super().memory()

    loop = loop_over([Slow()], clock, 10, kept, duration_ns=S)
    loop.run()
    start = loop.start_ns
    # Sample 0 took 0.55 s: 1 to 3 are gone, 4 and 5 are taken late, and 6 stands where it should.
    late = [(150_000_000, 4), (50_000_000, 5), (0, 6)]
    assert [(t - start, by) for t, by in kept.ticks][1:4] == [(k * S // 10 + by, by) for by, k in late]
    assert (loop.taken, loop.due) == (8, 11)


def test_a_lost_card_ends_its_own_series_and_the_others_go_on() -> None:
    clock, kept = FakeClock(), Kept()
    bad = FakeSensor(uuid="GPU-0", utilisations=[Utilisation(0.9, 0.5), Missing("gpu-lost", "GPU is lost")])
    loop = loop_over([bad, *sensors(2)[1:]], clock, 2, kept, duration_ns=5 * S)
    loop.run()
    assert loop.stopped[0].reason == "GPU is lost"
    assert loop.stopped[0].t_ns == loop.start_ns + S // 2
    util = [r for r in kept.rows if r.field == "util"]
    assert sum(r.uuid == "GPU-1" for r in util) == loop.taken == 11
    assert [r.missing for r in util if r.uuid == "GPU-0"] == [None, "GPU is lost"]


def test_without_a_card_left_the_loop_ends_at_once() -> None:
    clock, kept = FakeClock(), Kept()
    bad = FakeSensor(utilisations=[Missing("gpu-lost", "GPU is lost")])
    loop = loop_over([bad], clock, 2, kept)
    loop.run()
    assert (loop.taken, loop.end_ns) == (1, loop.start_ns)


def test_a_sensor_that_breaks_its_word_is_no_fault_of_the_run() -> None:
    class Broken(FakeSensor):
        def memory(self):  # type: ignore[no-untyped-def]
            raise RuntimeError("driver hiccup")

    clock, kept = FakeClock(), Kept()
    loop = loop_over([Broken(uuid="GPU-9"), *sensors(1)], clock, 2, kept, duration_ns=S)
    loop.run()
    assert "driver hiccup" in loop.stopped[0].reason
    assert loop.taken == 3


def test_a_full_disk_ends_the_loop_with_one_error() -> None:
    class Full(Kept):
        def add(self, rows: Sequence[UtilReading]) -> None:
            raise TargetError("x: cannot write (No space left on device)")

    clock = FakeClock()
    loop = loop_over(sensors(1), clock, 100, Full())
    with pytest.raises(TargetError, match="No space left"):
        loop.run()
    assert loop.taken == 1
    assert loop.end_ns is not None


@pytest.mark.parametrize("hz", [0, -2, 100.5, float("nan")])
def test_rates_without_meaning(hz: float) -> None:
    with pytest.raises(UsageError, match="sampling rate"):
        loop_over(sensors(1), FakeClock(), hz, Kept())


def test_what_is_read_seldom_is_read_once_more_at_the_end_of_every_series_that_lasts() -> None:
    clock, kept = FakeClock(), Kept()
    cards = sensors(2)
    takers = [SampleTaker(card, [EnergyRows(card, Pace(None, period_ns=60 * S))]) for card in cards]
    loop = SampleLoop(takers, clock, 2, kept, wait=waiter(clock), duration_ns=5 * S)  # type: ignore[arg-type]
    cards[1].utilisations = [Utilisation(0.5, 0), Missing("gpu-lost", "GPU is lost")]
    loop.run()
    read = [((r.t_ns - loop.start_ns) // S, r.uuid) for r in kept.rows if r.field == "energy_j"]
    assert read == [(0, "GPU-0"), (0, "GPU-1"), (5, "GPU-0")]


def test_an_hour_at_2_hz_leaves_a_file_that_opens(tmp_path: Path) -> None:
    clock, spool = FakeClock(), Spool(tmp_path / "gpu_util.parquet")
    loop = loop_over(sensors(1), clock, 2, spool, duration_ns=3600 * S)  # type: ignore[arg-type]
    loop.run()
    spool.close()
    util = UtilFile(tmp_path / "gpu_util.parquet").series("util")["GPU-0"]
    assert loop.taken == loop.due == 7201
    assert util.t_ns.size == 7201
    assert int(util.t_ns[-1] - util.t_ns[0]) == 3600 * S
    assert [path.name for path in tmp_path.iterdir()] == ["gpu_util.parquet"]


def test_eight_cards_at_100_hz_lose_no_sample_and_memory_stays_flat(tmp_path: Path) -> None:
    clock, spool = WorkingClock(), Spool(tmp_path / "gpu_util.parquet", batch_rows=512, part_ns=2 * S)
    cards = sensors(8)
    takers = [SampleTaker(card, extras=(ThrottleRows(card), ProcessRows(card))) for card in cards]
    marks: list[int] = []

    def wait(seconds: float) -> bool:
        clock.advance(round(seconds * 1e9))
        if loop.taken in (250, 1550):
            marks.append(tracemalloc.get_traced_memory()[0])
        return False

    loop = SampleLoop(takers, clock, 100, spool, wait=wait, duration_ns=16 * S)
    # What other tests left in this process is none of the loop's business: collecting it takes longer than a period.
    gc.collect()
    gc.freeze()
    tracemalloc.start(1)
    try:
        loop.run()
        spool.close()
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    assert loop.taken == loop.due == 1601
    # Between the marks lie 135,000 rows, 10 MB if they were kept; the writer's queue may hold 2 MB at either.
    assert marks[-1] - marks[0] < 4_000_000
    stored = UtilFile(tmp_path / "gpu_util.parquet").series("util")
    assert {uuid: found.t_ns.size for uuid, found in stored.items()} == {f"GPU-{i}": 1601 for i in range(8)}
