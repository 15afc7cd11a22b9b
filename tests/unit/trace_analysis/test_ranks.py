"""Ranks: who waits in collectives, and who is waited for."""

from __future__ import annotations

from kdaprof.analysis.trace.ranks import Collective, RankInput, rank_of, rank_table


def one(rank: int, *durations: int, name: str = "ncclDevKernel_AllReduce") -> RankInput:
    kernels = (Collective(name=name, durations_ns=durations),) if durations else ()
    return RankInput(rank=rank, path=f"r{rank}", span_ns=1_000, busy_ns=700, idle_ns=300, collectives=kernels)


def test_the_rank_that_comes_last_waits_least() -> None:
    rows = rank_table([one(1, 10, 20), one(0, 110, 220), one(2, 100, 210)])
    assert [row.rank for row in rows] == [0, 1, 2]
    assert [row.collective_wait_ns for row in rows] == [300, 0, 280]
    assert [row.straggler for row in rows] == [False, True, False]
    assert [row.collective_ns for row in rows] == [330, 30, 310]


def test_even_ranks_have_no_straggler() -> None:
    rows = rank_table([one(0, 100, 110), one(1, 110, 100)])
    assert [row.collective_wait_ns for row in rows] == [10, 10]
    assert not any(row.straggler for row in rows)


def test_only_what_all_ranks_have_is_compared() -> None:
    rows = rank_table([one(0, 100, 500), one(1, 10)])
    assert [row.matched for row in rows] == [1, 1]
    assert [row.collective_wait_ns for row in rows] == [90, 0]
    nothing = rank_table([one(0), one(1, 10)])
    assert [row.collective_wait_ns for row in nothing] == [None, None]


def test_the_rank_is_recorded_or_in_the_name() -> None:
    assert rank_of("trace_rank3.json", None) == 3
    assert rank_of("host_rank-12.json.gz", None) == 12
    assert rank_of("trace_rank3.json", 5) == 5
    assert rank_of("trace.json", None) is None
