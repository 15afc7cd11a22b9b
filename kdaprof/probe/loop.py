"""Cells of the op called again and again, untimed, for as long as an outer tool looks: `kdaprof probe --stacks`.

`python -m kdaprof.probe.loop SPEC.json INTERVALS.json`: warm-up first, then each cell for its share of the seconds;
the second file gets what ran when.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kdaprof.instruments.clock import Clock, MonotonicClock
from kdaprof.instruments.cuda_device import open_device
from kdaprof.instruments.device import Device
from kdaprof.probe.once import WARM_CALLS
from kdaprof.runs.atomic import write_bytes
from kdaprof.workloads.op import CaseSpec, OpCase

Ran = tuple[int, int, str]
"""start_ns, end_ns (monotonic) and phase."""


@dataclass(frozen=True, slots=True)
class LoopTask:
    """What to call, and for how long in all."""

    cases: tuple[CaseSpec, ...]
    seconds: float


def call_for(task: LoopTask, device: Device, clock: Clock) -> list[Ran]:
    """Call every case for the same time, at least once; what ran when, without `prepare` and the warm-up."""
    ran: list[Ran] = []
    for spec in task.cases:
        case = OpCase(spec)
        for call in range(WARM_CALLS):
            case.prepare(call)
            case.run()
        device.synchronize()
        over_ns = clock.now_ns() + round(task.seconds * 1e9 / len(task.cases))
        call = 0
        while call == 0 or clock.now_ns() < over_ns:
            case.prepare(call)
            device.synchronize()
            start_ns = clock.now_ns()
            case.run()
            device.synchronize()  # inside: what the host waits for is part of the call
            ran.append((start_ns, clock.now_ns(), spec.key.phase))
            call += 1
    return ran


def main(argv: Sequence[str]) -> None:
    """The command line of this module; errors are raised as they are."""
    task = msgspec.json.decode(Path(argv[0]).read_bytes(), type=LoopTask)
    ran = call_for(task, open_device(task.cases[0].device), MonotonicClock())
    write_bytes(Path(argv[1]), msgspec.json.encode(ran))


if __name__ == "__main__":
    main(sys.argv[1:])
