"""A loop that forks in the middle of a step, inside a profiled window: `forking_loop.py RUN WHAT-THE-CHILD-DOES`."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

from fake_gpu import fake_lab

from kdaprof import StepProfiler
from kdaprof.instruments.fakes.borders import FakeBorders
from kdaprof.integrations.steps import WindowPlan
from kdaprof.integrations.steps import profiler as profiler_module

STEPS, FORKS_IN = 8, 3
PLAN = WindowPlan(first=2, every=50, steps=3, most=1)


def main(out: Path, how: str) -> None:
    """Train; the parent waits for its child in the step of the fork, and looks at what that has done to the run."""
    profiler_module.FLUSH_NS = 0  # a step that a child keeps is written at once
    lab, gpu, kinds = fake_lab()
    marks = lab.borders
    assert isinstance(marks, FakeBorders)

    def stored() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}

    def on_device() -> tuple[object, ...]:
        return marks.made, set(marks.out), marks.waited, gpu.synchronized, tuple(kinds), tuple(gpu.launches)

    parent, before, device = os.getpid(), {}, on_device()
    with StepProfiler(out, shape={"B": 8}, lab=lab, environ={}, live=print, live_seconds=0.0, windows=PLAN) as prof:
        for number in range(STEPS):
            with prof.step(tokens=10), prof.phase("fwd"):
                if number == FORKS_IN:
                    prof._run._wait()  # no write of the parent's own is under way
                    sys.stdout.flush()
                    before, device = stored(), on_device()
                    if how == "worker":
                        work = multiprocessing.get_context("fork").Process(target=prof.close, args=("by a worker",))
                        work.start()
                        work.join()
                    else:
                        child = os.fork()
                        if child == 0 and how == "leaves":
                            break
                        if child == 0 and how == "raises":
                            raise ValueError("in the child")
                        if child == 0 and how == "ends":
                            sys.exit()
                        if child:
                            os.waitpid(child, 0)
                    assert os.getpid() != parent or stored() == before, "the child wrote into the run"
                if os.getpid() == parent:
                    gpu.launch(1_000_000, 2_000_000)
            if os.getpid() != parent and how == "hooks":
                prof.begin_step()
                prof.begin_phase("bwd")
                prof.end_phase()
                prof.end_step()
                prof.begin_step()
                prof.abandon()
    if os.getpid() != parent:
        assert prof.notes == (), prof.notes
        assert on_device() == device, "the child touched the device"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
