"""What a call of the fused path costs in Python, on a CPU: everything but allocations on a GPU and the launches.

    python benchmarks/fused_host.py [--rounds 9] [--against TREE]

Every launch goes through Triton's own handle up to its launcher, which is a function that does nothing. TREE is
another checkout of the project, measured in turn with this one. A round is the fastest of 40 batches in CPU time, since
others may want the processor; printed are medians of the rounds, in µs a call. On a GPU `fused_kernels.py call` has the
host's part of real calls. autograd hands a CPU's backward to no other thread: what that costs on a GPU is not in these
figures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).parents[1]
BATCHES, CALLS = 40, 50


def handle() -> Any:
    """Triton's handle of a compiled kernel whose launcher does nothing."""
    from triton.compiler.compiler import CompiledKernel  # noqa: PLC0415

    made = CompiledKernel.__new__(CompiledKernel)
    made.module, made.function, made.packed_metadata, made.name, made.src = 1, 2, (1, 1, 0), "nothing", None
    made._run = lambda *_: None
    return made


class NoKernel:
    """In a JIT function's place."""

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *_, **__: handle()


def one_round() -> tuple[float, float]:
    """µs of a forward, and of a forward and backward, of a call that trains."""
    import torch  # noqa: PLC0415
    from triton.runtime import driver  # noqa: PLC0415

    from kdaprof.kda.fused import entries, fused_kda  # noqa: PLC0415

    driver.set_active(SimpleNamespace(get_current_device=lambda: 0, get_current_stream=lambda _: 0))
    kinds = (*(torch.float32,) * 5, None)
    forward = entries.choose_forward(torch.device("cpu"), kinds, 64, 64, False, "tf32x3", True)
    backward = entries.choose_backward(torch.device("cpu"), kinds, 64, 64, False, True, "tf32x3")
    for stage in (forward.prepare, forward.recur, backward.recur, backward.state, backward.pairs):
        stage._kernel = NoKernel()
    args = [torch.zeros(1, 32, 1, 64).requires_grad_() for _ in range(4)]
    args.append(torch.zeros(1, 32, 1).requires_grad_())
    do = torch.zeros(1, 32, 1, 64)

    def call() -> Any:
        return fused_kda(*args, scale=0.125)[0]

    def both() -> None:
        torch.autograd.grad(call(), args, do)

    found = []
    for body in (call, both):
        batches = []
        for _ in range(BATCHES):
            begin = time.thread_time_ns()
            for _ in range(CALLS):
                body()
            batches.append((time.thread_time_ns() - begin) / CALLS / 1e3)
        found.append(min(batches))
    return found[0], found[1]


def measured(tree: Path) -> tuple[float, float]:
    """`one_round` in a process of its own, with `tree`'s package."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--one"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    first, second = done.stdout.split()
    return float(first), float(second)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(*one_round())
        return
    trees = [HERE] if args.against is None else [args.against.resolve(), HERE]
    rounds = [[measured(tree) for tree in trees] for _ in range(args.rounds)]
    for index, tree in enumerate(trees):
        forward, both = (median(found[index][part] for found in rounds) for part in (0, 1))
        print(f"{tree}: forward {forward:.1f} us, forward + backward {both:.1f} us")


if __name__ == "__main__":
    main()
