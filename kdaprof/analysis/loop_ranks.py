"""Ranks of one watched loop side by side: each phase, and who waits for whom in collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kdaprof.analysis.trace.context import make_context
from kdaprof.analysis.trace.loop import entries_of
from kdaprof.analysis.trace.ranks import RankInput, RankRow, collectives_of, rank_table
from kdaprof.analysis.view import RawRun
from kdaprof.runs.facts import Fact
from kdaprof.runs.results import RunResults
from kdaprof.timeline.columns import Timeline
from kdaprof.timeline.loop_ranges import WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRank:
    """One rank. `walls` by phase, `step` the whole; figures of collectives are per step of the last profiled window.

    `wait_ns`: how much longer its collectives took than the shortest rank's, one by one; None when they could not be
    compared. The rank that comes last waits least: `straggler` marks it when the others wait long for it.
    """

    rank: int
    walls: Mapping[str, Fact]
    host_bound: Fact | None
    collective_ns: int | None
    wait_ns: int | None
    compared: int
    straggler: bool


def loop_ranks(runs: Sequence[tuple[int, RawRun, RunResults]]) -> tuple[LoopRank, ...]:
    """(rank, run, results) of each, in the order of ranks; () unless all of them are watched loops.

    A rank that was killed before its first steps were stored has no walls.
    """
    stored = [raw for _, raw, _ in runs if raw.record.cells]
    if not stored or not all(map(_is_loop, stored)):
        return ()
    windows = [_last_window(raw) for _, raw, _ in runs]
    known = [window for window in windows if window is not None]
    rows: Sequence[RankRow | None] = _waits(known) if len(known) == len(windows) else [None] * len(windows)
    return tuple(
        _rank(rank, results, row, window) for (rank, _, results), row, window in zip(runs, rows, windows, strict=True)
    )


def _rank(rank: int, results: RunResults, row: RankRow | None, window: Timeline | None) -> LoopRank:
    walls = {cell.id.split("/")[4]: cell.facts["wall_ns"] for cell in results.cells}
    whole = next((cell for cell in results.cells if cell.id.split("/")[4] == WHOLE), None)
    steps = len(entries_of(window, WHOLE)) if window is not None else 0
    each = max(steps, 1)
    wait_ns = row.collective_wait_ns if row is not None else None
    return LoopRank(
        rank=rank,
        walls=walls,
        host_bound=whole.facts.get("host_bound") if whole is not None else None,
        collective_ns=round(row.collective_ns / each) if row is not None and row.collective_ns else None,
        wait_ns=round(wait_ns / each) if wait_ns is not None else None,
        compared=row.matched if row is not None else 0,
        straggler=row is not None and row.straggler,
    )


def _is_loop(raw: RawRun) -> bool:
    return any(cell.observed is not None and cell.observed.borders == "loop" for cell in raw.record.cells)


def _last_window(raw: RawRun) -> Timeline | None:
    """The last profiled window of the steps; device activity alone where there is one."""
    for kind in ("profiled-cuda", "profiled-full"):
        for cell in raw.record.cells:
            if cell.key.phase == WHOLE and (cell.id, kind) in raw.timelines:
                return raw.timelines[cell.id, kind]
    return None


def _waits(windows: Sequence[Timeline]) -> tuple[RankRow, ...]:
    inputs = []
    for rank, timeline in enumerate(windows):
        span = sum(entry.window[1] - entry.window[0] for entry in entries_of(timeline, WHOLE))
        inputs.append(
            RankInput(
                rank=rank,
                path=timeline.source.path or "",
                span_ns=span,
                busy_ns=0,
                idle_ns=span,
                collectives=collectives_of(make_context(timeline)),
            )
        )
    return rank_table(inputs)
