"""What a call of the fused path costs in Python, on a CPU: everything but allocations on a GPU and the launches.

    python benchmarks/fused_host.py [--rounds 9] [--against TREE]

Every launch goes through Triton's own handle up to its launcher, which is a function that does nothing. TREE is
another checkout of the project, measured in turn with this one. A round is the fastest of 40 batches in CPU time, since
others may want the processor; printed are medians of the rounds, in µs a call. The GPU starts at a call's first launch:
what comes before is all of its wall that the host alone decides. On a GPU `fused_kernels.py call` has the
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


LAUNCHED: list[int] = []
"""The thread's CPU time at each launch since it was last cleared."""

FIGURES = ("forward without gradients", "its first launch", "forward", "its first launch", "forward + backward")


def handle() -> Any:
    """Triton's handle of a compiled kernel whose launcher only notes the time."""
    from triton.compiler.compiler import CompiledKernel  # noqa: PLC0415

    made = CompiledKernel.__new__(CompiledKernel)
    made.module, made.function, made.packed_metadata, made.name, made.src = 1, 2, (1, 1, 0), "nothing", None
    made._run = lambda *_: LAUNCHED.append(time.thread_time_ns())
    return made


class NoKernel:
    """In a JIT function's place."""

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *_, **__: handle()


def one_round() -> tuple[float, ...]:
    """µs of each of `FIGURES`, of a call whose gradients nobody wants and of one that trains."""
    import torch  # noqa: PLC0415
    from triton.runtime import driver  # noqa: PLC0415

    from kdaprof.kda.fused import entries, fused_kda  # noqa: PLC0415

    driver.set_active(SimpleNamespace(get_current_device=lambda: 0, get_current_stream=lambda _: 0))
    kinds = (*(torch.float32,) * 5, None)
    cpu = torch.device("cpu")
    trains = entries.choose_forward(cpu, kinds, 64, 64, False, "tf32x3", True, True)
    alone = entries.choose_forward(cpu, kinds, 64, 64, False, "tf32x3", None, False)
    backward = entries.choose_backward(cpu, kinds, 64, 64, False, True, "tf32x3")
    for plan in (trains, alone, backward):
        for name in ("prepare", "recur", "state", "pairs"):
            if (stage := getattr(plan, name, None)) is not None:
                stage._kernel = NoKernel()
    shapes = [(1, 32, 1, 64)] * 4 + [(1, 32, 1)]
    constant = [torch.zeros(shape) for shape in shapes]
    trained = [torch.zeros(shape, requires_grad=True) for shape in shapes]
    do = torch.zeros(1, 32, 1, 64)

    def call(args: list[Any]) -> Any:
        return fused_kda(*args, scale=0.125)[0]

    def both(args: list[Any]) -> None:
        torch.autograd.grad(call(args), args, do)

    both(trained)  # the first launch of each kernel makes its handle
    call(constant)
    found = []
    for body, args in ((call, constant), (call, trained), (both, trained)):
        wholes, starts = [], []
        for _ in range(BATCHES):
            whole = start = 0
            for _ in range(CALLS):
                LAUNCHED.clear()
                begin = time.thread_time_ns()
                body(args)
                whole += time.thread_time_ns() - begin
                start += LAUNCHED[0] - begin
            wholes.append(whole / CALLS / 1e3)
            starts.append(start / CALLS / 1e3)
        found += [min(wholes), min(starts)] if body is call else [min(wholes)]
    return tuple(found)


def measured(tree: Path) -> tuple[float, ...]:
    """`one_round` in a process of its own, with `tree`'s package."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--one"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return tuple(float(figure) for figure in done.stdout.split())


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
        figures = (median(found[index][part] for found in rounds) for part in range(len(FIGURES)))
        print(f"{tree}: " + ", ".join(f"{name} {us:.1f} us" for name, us in zip(FIGURES, figures, strict=True)))


if __name__ == "__main__":
    main()
