"""A loop of known mix under StepProfiler: 30 ms asleep, then 70 ms of small operations, forward and backward.

Arguments: run directory, seconds, exit code. It says "ready"; then each line is one cycle: three times (its start, the
end of its sleep, its end) the monotonic time, the thread's CPU time and its time ready without a core, in ns. Without
a run directory ("-") it loops bare, 9 ms and 21 ms, these of CPU time, which no stop and no other process shortens.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch

from kdaprof import StepProfiler
from kdaprof.integrations.steps import WindowPlan


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def now() -> str:
    delay = Path("/proc/thread-self/schedstat").read_text().split()[1]
    return f"{time.monotonic_ns()} {time.thread_time_ns()} {delay}"


def nap(seconds: float) -> None:
    time.sleep(seconds)


def operations(x: torch.Tensor, seconds: float, clock: Callable[[], float]) -> None:
    end = clock() + seconds
    while clock() < end:
        ((x + 1) * 2).sum().backward()


def main(folder: str, seconds: float, code: int) -> int:
    x = torch.randn(4, requires_grad=True)
    plan = WindowPlan(first=10_000)  # no profiled window: it would be part of the mix
    bare = folder == "-"
    with (
        nullcontext()
        if bare
        else StepProfiler(folder, shape={"B": 4}, device="cpu", windows=plan, history=False) as prof
    ):
        say("ready")
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            start = now()
            with nullcontext() if prof is None else prof.step():
                with nullcontext() if prof is None else prof.phase("data"):
                    nap(0.009 if bare else 0.03)
                slept = now()
                with nullcontext() if prof is None else prof.phase("ops"):
                    operations(x, *((0.021, time.thread_time) if bare else (0.07, time.monotonic)))
            say(f"{start} {slept} {now()}")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
