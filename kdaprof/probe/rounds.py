"""The timed part: warm-up from step 0, then interleaved rounds (A B B A …), then what must not disturb them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from kdaprof.instruments.allocator import delta
from kdaprof.instruments.nvtx import in_range
from kdaprof.instruments.timing import time_burst, time_call
from kdaprof.probe.bench import Bench
from kdaprof.probe.plan import Effort
from kdaprof.probe.series import Series
from kdaprof.probe.stopping import why_enough

WARMUP_ROUND = -1
_BURST_NS = 300_000_000


def warm_up(series: Series, bench: Bench, effort: Effort) -> None:
    """Executions before the rounds, kept with their index: the cold part is data, not waste.

    Stops early once `cell_seconds` have passed: a first call may compile for minutes. Ends with a burst, so that
    the allocator's pool has the size that running ahead needs before the first round begins.
    """
    began = bench.clock.now_ns()
    for _ in range(effort.warmup):
        one_sample(series, bench, WARMUP_ROUND)
        if bench.clock.now_ns() - began > effort.cell_seconds * 1e9:
            return
    _burst(series, bench, WARMUP_ROUND, _burst_length(series, effort))


def measure_rounds(
    group: Sequence[Series],
    bench: Bench,
    effort: Effort,
    *,
    after_round: Callable[[int], None],
    on_failure: Callable[[Series, Exception], None],
    beside: Callable[[Series, int], None] | None = None,
) -> tuple[str, ...]:
    """Interleave the cells of a group over its rounds; returns notes on what was cut short.

    A round is A B B A or B A A B, half of a cell's samples in each turn, so that a steady drift of the host falls on
    every cell alike. Which opens is drawn anew: of A B, B A, A B … a drift with a period of two rounds falls on the
    same side again and again, and 17 of 100 A/A comparisons over five of them are called different, 6 of these
    (`benchmarks/ab_statistics.py --order alternate`). A cell whose samples would take longer than `cell_seconds` gets
    fewer samples a round, never fewer than two. Rounds end when `why_enough` says so. `beside(series, round)` takes
    what else belongs to a round. A cell that raises is handed to `on_failure` and takes no further part; the others
    go on.
    """
    counts = {series.key: _samples_within(series, effort) for series in group}
    notes = tuple(
        f"{series.key.id}: {counts[series.key]} samples a round instead of {effort.samples}: one call takes too long"
        for series in group
        if counts[series.key] < effort.samples
    )
    began = bench.clock.now_ns()
    live = list(group)
    draw = random.Random(f"{[series.key.id for series in live]} {began}")
    enough: str | None = None
    number = -1
    while enough is None and live:
        number += 1
        order = live[:] if draw.random() < 0.5 else live[::-1]
        turns = [(series, False) for series in order] + [(series, True) for series in reversed(order)]
        for series, last in turns:
            if series not in live:
                continue
            try:
                _one_turn(series, bench, effort, number, _half(counts[series.key], last=last), last=last)
                if beside is not None and last:
                    beside(series, number)
            except Exception as error:
                live.remove(series)
                on_failure(series, error)
        after_round(number)
        enough = why_enough(live, number + 1, bench.clock.now_ns() - began, effort)
    if not live:
        return notes
    taken = "1 round" if number == 0 else f"{number + 1} rounds"
    key = live[0].key
    size = f"/{key.extents}" if key.phase == "step" else ""  # an op has one in a run, a step has those of a sweep
    return (*notes, f"{key.context}/{key.phase}{size}: {taken}: {enough}")


def _half(samples: int, *, last: bool) -> int:
    """How many of a round's samples fall into a cell's first turn, or its last."""
    return samples - samples // 2 if last else samples // 2


def _one_turn(series: Series, bench: Bench, effort: Effort, number: int, samples: int, *, last: bool) -> None:
    """One of the two turns that a cell has in a round; a cell with one sample a round has but the last."""
    if samples == 0:
        return
    with in_range(bench.ranges, series.key.id, "cell", number):
        _settle(series, bench)
        for _ in range(samples):
            one_sample(series, bench, number)
        if not last:
            return
        mark_reserved(series, bench)
        _burst(series, bench, number, _burst_length(series, effort))


def one_sample(series: Series, bench: Bench, number: int) -> None:
    """One unprofiled execution: host and wall, SM clock read right behind it."""
    series.case.prepare(series.next_input())
    timing = time_call(series.case.run, bench.device, bench.clock)
    clock_hz = bench.sm_clock()
    series.add("unprofiled", number, timing.t_ns, host_ns=timing.host_ns, wall_ns=timing.wall_ns, sm_clock_hz=clock_hz)
    if bench.beside is not None and number >= 0:
        bench.beside(timing.t_ns)


def event_repeats(series: Series, bench: Bench, effort: Effort) -> None:
    """Device spans between two events, in executions of their own: recording an event costs 8.5 µs of host time."""
    if bench.device.kind != "cuda":
        return
    for _ in range(effort.events):
        series.case.prepare(series.next_input())
        timing = time_call(series.case.run, bench.device, bench.clock, with_events=True)
        series.add("events", 0, timing.t_ns, gpu_span_ns=timing.gpu_span_ns)


def allocator_repeats(series: Series, bench: Bench, effort: Effort) -> None:
    """Allocations of one call, counters read outside it; the peak is growth over what was held before the call."""
    for _ in range(effort.allocator):
        series.case.prepare(series.next_input())
        bench.device.synchronize()
        before = bench.allocator.read()
        bench.allocator.reset_peak()
        start = bench.clock.now_ns()
        series.case.run()
        bench.device.synchronize()
        after = bench.allocator.read()
        change = delta(before, after)
        if after is None or change is None:
            return
        series.add(
            "alloc",
            0,
            start,
            allocs=change.allocs,
            alloc_bytes=change.alloc_bytes,
            peak_bytes=change.peak_bytes,
            reserved_bytes=after.reserved_bytes,
        )


def mark_reserved(series: Series, bench: Bench) -> None:
    """Write the reserved memory on the last sample: read at a round's border, outside the timed part."""
    counters = bench.allocator.read()
    if counters is not None and series.samples:
        series.relabel_last(reserved_bytes=counters.reserved_bytes)


def _settle(series: Series, bench: Bench) -> None:
    """One execution that is not a sample: after another path, caches and the branch predictor are that path's."""
    series.case.prepare(series.next_input())
    series.case.run()
    bench.device.synchronize()


def _burst(series: Series, bench: Bench, number: int, calls: int) -> None:
    """`calls` executions back to back with one synchronise: the host may run ahead of the device.

    Phase bwd has none, since each backward needs a forward before it; nor has the CPU, which nothing runs ahead of.
    """
    if bench.device.kind != "cuda" or series.key.phase == "bwd" or series.key.mode == "graph":
        return
    series.case.prepare(series.next_input())
    burst = time_burst(series.case.run, calls, bench.device, bench.clock)
    series.add("pipelined", number, burst.t_ns, calls=calls, host_ns=burst.host_ns, wall_ns=burst.wall_ns)


def _typical_ns(series: Series) -> int:
    walls = sorted(s.wall_ns for s in series.samples if s.repeat == "unprofiled" and s.wall_ns is not None)
    return walls[len(walls) // 2] if walls else 0


def _samples_within(series: Series, effort: Effort) -> int:
    typical = _typical_ns(series)
    if typical <= 0:
        return effort.samples
    allowed = int(effort.cell_seconds * 1e9 / (typical * effort.rounds))
    return min(effort.samples, max(2, allowed))


def _burst_length(series: Series, effort: Effort) -> int:
    typical = max(1, _typical_ns(series))
    return max(2, min(effort.burst, int(_BURST_NS / typical)))
