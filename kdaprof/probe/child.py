"""Work that needs a process of its own: its specification, its result, and the parent's side of it.

Profiled repeats (CUPTI may slow a process for good), cold starts (empty caches) and Triton's interpreter (its
variable counts before import) each run in a child. The result file is rewritten after every cell, so that a child
that dies has lost one cell only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from kdaprof.probe.plan import Effort
from kdaprof.runs.cells import CellKey
from kdaprof.runs.compiles import SlowStep
from kdaprof.runs.record import CellError, CellRecord, Profiled
from kdaprof.runs.samples import Sample
from kdaprof.workloads.op import CaseSpec
from kdaprof.workloads.step.spec import StepSpec

Task = Literal["profile", "cold", "interpret"]
SPEC_FILE, RESULT_FILE = "spec.json", "result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTask:
    """A training step to be worked on in one of its modes; `keys` are the cells that are measured with it.

    `brief`: recorded with CUDA activity alone, which tells busy time and kernels but not why the GPU idles.
    """

    spec: StepSpec
    mode: str
    keys: tuple[CellKey, ...] = ()
    brief: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """One child's work: cells of an op, or steps. `out` is the run directory that takes the timelines."""

    task: Task
    cases: tuple[CaseSpec, ...]
    effort: Effort
    out: str
    steps: tuple[StepTask, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCell:
    """What a child made of one cell."""

    cell: str
    samples: tuple[Sample, ...] = ()
    profiled: tuple[Profiled, ...] = ()
    record: CellRecord | None = None
    error: CellError | None = None
    slow_steps: tuple[SlowStep, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """Cells in the order of the specification; `failure` says why some may be absent."""

    cells: tuple[ChildCell, ...] = ()
    failure: str | None = None

    def of(self, cell: str) -> ChildCell | None:
        """The result of a cell, if the child came that far."""
        return next((row for row in self.cells if row.cell == cell), None)


class Spawn(Protocol):
    """Runs one child to its end. The seam that tests replace."""

    def __call__(self, spec: ChildSpec, *, env: Mapping[str, str], timeout_s: float) -> ChildResult:
        """The child's result; never raises for a child that failed."""
        ...


def spawn(spec: ChildSpec, *, env: Mapping[str, str], timeout_s: float) -> ChildResult:
    """Run `python -m kdaprof.probe.worker` on `spec` in a session of its own and read what it left.

    A child over its time is killed with its group; so is one that is running when the parent is interrupted.
    """
    with tempfile.TemporaryDirectory(prefix="kdaprof-") as folder:
        place = Path(folder)
        (place / SPEC_FILE).write_bytes(msgspec.json.encode(spec))
        log = place / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "kdaprof.probe.worker", folder, str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env={**os.environ, **env},
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
        return _result(place, code, log.read_text(errors="replace"), timeout_s)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _result(place: Path, code: int | None, log: str, timeout_s: float) -> ChildResult:
    path = place / RESULT_FILE
    cells = msgspec.json.decode(path.read_bytes(), type=ChildResult).cells if path.exists() else ()
    if code == 0:
        return ChildResult(cells=cells)
    if code is None:
        return ChildResult(cells=cells, failure=f"the worker process took longer than {timeout_s:.0f} s and was ended")
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "no output")
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return ChildResult(cells=cells, failure=f"the worker process ended with {how}: {last[:300]}")
