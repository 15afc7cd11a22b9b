"""What `StepProfiler` costs a training loop: the same steps with and without it, interleaved, in one process.

    python benchmarks/step_profiler_cost.py                    on the CUDA device, else on the CPU
    python benchmarks/step_profiler_cost.py --device cpu --rounds 30

Six phases a step, no profiled windows. Three figures: the cost that the profiler prints of itself; the same measured
here on empty steps, interleaved (mean, quietest quarter of the rounds); and steps of about 10 ms, rounds A B B A …,
whose ratio is what a user pays, with its interval. Limits: 12 µs a phase, 1 % of a 10 ms step. Exit 1 when the cost on
empty steps is over a limit, or when the ratio's whole interval is.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import torch

from kdaprof import StepProfiler
from kdaprof.analysis.interleaved import compare_interleaved
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.cuda_device import open_device
from kdaprof.instruments.timing import garbage_collection_off
from kdaprof.integrations.steps import WindowPlan

PHASES = ("fwd", "teacher", "retr", "bwd", "opt", "ema")
LIMIT_PHASE_NS, LIMIT_SHARE, STEP_NS = 12_000, 0.01, 10_000_000
EMPTY_STEPS, STEPS_OF_A_ROUND = 50, 12

Block = Callable[[str], AbstractContextManager[None]]
Step = Callable[[], AbstractContextManager[None]]
CLOCK = MonotonicClock()


def nothing(_: str = "") -> AbstractContextManager[None]:
    return contextlib.nullcontext()


def loop(step: Step, phase: Block, work: Callable[[], object], steps: int, wait: Callable[[], None]) -> float:
    """Mean wall of a step, in ns."""
    with garbage_collection_off():
        wait()
        start = CLOCK.now_ns()
        for _ in range(steps):
            with step():
                for name in PHASES:
                    with phase(name):
                        work()
        wait()
        return (CLOCK.now_ns() - start) / steps


def phase_of_work(device: torch.device, wait: Callable[[], None]) -> Callable[[], object]:
    """Small operators, as many as make a step of six phases last about 10 ms."""
    x = torch.randn(64, 64, device=device)

    def work() -> None:
        y = x
        for _ in range(count):
            y = torch.tanh(y @ x)

    count = 16
    for _ in range(6):
        took = min(loop(nothing, nothing, work, 3, wait) for _ in range(5))
        count = max(1, round(count * STEP_NS / took))
    return work


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=24)
    args = parser.parse_args()
    device = open_device(args.device)
    torch.set_num_threads(1)
    where = torch.device("cpu" if device.kind == "cpu" else f"cuda:{device.index}")
    work = phase_of_work(where, device.synchronize)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        plan = WindowPlan(most=0)
        with StepProfiler(out, shape={"B": 1}, device=args.device, windows=plan, environ={}, history=False) as prof:
            sides: dict[str, tuple[Step, Block]] = {"with": (prof.step, prof.phase), "without": (nothing, nothing)}
            empty: dict[str, list[float]] = {"with": [], "without": []}
            full: dict[str, dict[int, list[float]]] = {"with": {}, "without": {}}
            for number in range(args.rounds + 1):
                order = ("with", "without") if number % 2 else ("without", "with")
                for side in order:
                    empty[side].append(loop(*sides[side], lambda: None, EMPTY_STEPS, device.synchronize))
                for turn in range(STEPS_OF_A_ROUND):
                    for side in order if turn % 2 else reversed(order):
                        wall = loop(*sides[side], work, 1, device.synchronize)
                        if number:  # the first round warms both sides
                            full[side].setdefault(number, []).append(wall)
        told = prof.summary().splitlines()[-1]
    quiet = {side: statistics.mean(sorted(walls)[: max(1, len(walls) // 4)]) for side, walls in empty.items()}
    step_ns = quiet["with"] - quiet["without"]
    ratio = compare_interleaved(full["without"], full["with"])
    base = statistics.median(wall for walls in full["without"].values() for wall in walls)
    print(f"device             {device.traits.name}")
    print(f"the profiler says  {told}")
    print(
        f"an empty step      {step_ns / 1000:.1f} µs with {len(PHASES)} phases: {step_ns / 6000:.2f} µs a phase at most"
    )
    print(f"of a 10 ms step    {step_ns / STEP_NS:.2%}")
    span = f"{ratio.interval[0] - 1:+.2%} to {ratio.interval[1] - 1:+.2%}" if ratio.interval else str(ratio.why)
    print(
        f"measured           {(ratio.value or 1) - 1:+.2%} ({span}) of a step of {base / 1e6:.1f} ms, "
        f"{args.rounds} rounds"
    )
    over = step_ns / len(PHASES) > LIMIT_PHASE_NS or step_ns / STEP_NS > LIMIT_SHARE
    over |= ratio.interval is not None and ratio.interval[0] > 1 + LIMIT_SHARE
    print("over the limit" if over else "within 12 µs a phase and 1 % of a 10 ms step")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
