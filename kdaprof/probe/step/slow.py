"""Which steps something was compiled or tuned in: the events of a process laid over the samples of a cell."""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.runs.compiles import CompileEvent, SlowStep
from kdaprof.runs.samples import Sample


def slow_steps(samples: Sequence[Sample], events: Sequence[CompileEvent]) -> tuple[SlowStep, ...]:
    """The first unprofiled step, and every other one in which an event ended."""
    found = []
    for sample in samples:
        if sample.repeat != "unprofiled" or sample.wall_ns is None:
            continue
        begin, end = sample.t_ns, sample.t_ns + sample.wall_ns
        inside = tuple(event for event in events if begin <= event.start_ns + event.ns <= end)
        if inside or sample.index == 0:
            found.append(
                SlowStep(fresh=False, index=sample.index, start_ns=begin, wall_ns=sample.wall_ns, events=inside)
            )
    return tuple(found)
