"""The sustained loop: a path runs call after call for some seconds while NVML samples the card."""

from __future__ import annotations

from kdaprof.probe.bench import Bench
from kdaprof.probe.plan import Effort
from kdaprof.probe.series import Series
from kdaprof.runs.util import UtilReading


def sustained(series: Series, bench: Bench, effort: Effort) -> tuple[UtilReading, ...]:
    """Loop for `util_seconds`, one synchronise a call as in the timed samples, so that the two shares compare.

    Phase bwd has no loop of its own: a forward stands before each backward, and would be counted with it.
    """
    if bench.sample_while is None or series.key.phase == "bwd" or effort.util_seconds <= 0:
        return ()
    calls = 0

    def loop() -> None:
        nonlocal calls
        until = bench.clock.now_ns() + int(effort.util_seconds * 1e9)
        while bench.clock.now_ns() < until:
            series.case.run()
            bench.device.synchronize()
            calls += 1

    series.case.prepare(series.next_input())
    start = bench.clock.now_ns()
    readings = bench.sample_while(loop)
    series.add("util", 0, start, calls=max(calls, 1), wall_ns=bench.clock.now_ns() - start)
    return readings
