"""The child's side: `python -m kdaprof.probe.worker FOLDER PARENT` reads the specification and leaves the result."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from kdaprof.probe.child import RESULT_FILE, SPEC_FILE, ChildCell, ChildResult, ChildSpec, Task
from kdaprof.probe.failures import describe
from kdaprof.runs.atomic import write_bytes
from kdaprof.workloads.op import CaseSpec

_PR_SET_PDEATHSIG = 1

CellTask = Callable[[CaseSpec, ChildSpec], ChildCell]


def main(folder: Path) -> int:
    """Work through the cells; a failing one is an error in its own place, the others go on."""
    spec = msgspec.json.decode((folder / SPEC_FILE).read_bytes(), type=ChildSpec)
    cells: list[ChildCell] = []
    if spec.steps:
        from kdaprof.probe.step.worker import work_through  # noqa: PLC0415  a child of an op needs no steps

        for done in work_through(spec):
            cells += done
            write_bytes(folder / RESULT_FILE, msgspec.json.encode(ChildResult(cells=tuple(cells))))
        return 0
    work = _task(spec.task)
    for case in spec.cases:
        try:
            cells.append(work(case, spec))
        except Exception as error:
            cells.append(ChildCell(cell=case.key.id, error=describe(error)))
        write_bytes(folder / RESULT_FILE, msgspec.json.encode(ChildResult(cells=tuple(cells))))
    return 0


def _task(task: Task) -> CellTask:
    # Imported here: the interpreter's child must not import what the profiler's child needs, nor the reverse.
    if task == "profile":
        from kdaprof.probe.profiled import profile_cell  # noqa: PLC0415

        return profile_cell
    if task == "cold":
        from kdaprof.probe.cold import cold_cell  # noqa: PLC0415

        return cold_cell
    from kdaprof.probe.interpreted import interpret_cell  # noqa: PLC0415

    return interpret_cell


def _end_with_parent(parent: int) -> None:
    """A probe that is killed must not leave its child on the card: Linux ends it with the parent.

    One that was killed while this process imported torch is gone already, and sends no signal any more.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the probe that asked for this has ended")


if __name__ == "__main__":
    _end_with_parent(int(sys.argv[2]))
    sys.exit(main(Path(sys.argv[1])))
