"""`kdaprof probe --stacks`: after the timed part, each path again under py-spy, in a process of its own.

Native stacks stop the process for each sample, so nothing of this goes into the run's figures.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kdaprof.analysis.stacks_trace import last_ns
from kdaprof.cli.stacks_run import write_recording
from kdaprof.errors import KdaprofError, UnavailableError
from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.stacks import StacksPlan, record
from kdaprof.instruments.stacks_spy import find_spy
from kdaprof.instruments.watch.command import Command
from kdaprof.probe.loop import LoopTask, Ran
from kdaprof.report.stacks import terminal_lines
from kdaprof.runs.cells import CellKey
from kdaprof.runs.record import RunRecord
from kdaprof.workloads.op import CaseSpec

SECONDS = 6.0
RATE_HZ = 100


def record_paths(
    record_of_run: RunRecord,
    folder: Path,
    *,
    device: str,
    seed: int,
    told: Callable[[str], None],
    seconds: float = SECONDS,
    anonymous: bool = False,
) -> None:
    """Stacks of each measured path into `folder/stacks-<path>/`; `told` gets the summaries, and what failed.

    `anonymous`: without host, user, home and paths, as the run itself.
    """
    try:
        find_spy()
    except UnavailableError as error:  # said at once, not behind repeats that nothing looks at
        told(f"stacks: not recorded, {error}")
        return
    keys = [cell.key for cell in record_of_run.cells if cell.key.mode == "eager" and cell.status == "ok"]
    for path in dict.fromkeys(key.path for key in keys):
        if path == "fused" and device == "cpu":
            told("stacks of fused: not recorded, without a GPU it runs in Triton's interpreter")
            continue
        cells = [key for key in keys if key.path == path]
        cells = [key for key in cells if key.context == cells[0].context]
        try:
            task = _Untimed(cells, folder / f"stacks-{path}", device, seed, seconds)
            for line in _record(task, record_of_run.command, anonymous=anonymous):
                told(line)
        except KdaprofError as error:
            told(f"stacks of {path}: {error}")


@dataclass(frozen=True, slots=True)
class _Untimed:
    """One path's untimed repeat."""

    cells: list[CellKey]
    folder: Path
    device: str
    seed: int
    seconds: float


def _record(task: _Untimed, command: tuple[str, ...], *, anonymous: bool) -> list[str]:
    cases = tuple(CaseSpec(key=key, device=task.device, seed=task.seed, input_sets=1) for key in task.cells)
    with tempfile.TemporaryDirectory(prefix="kdaprof-") as place:
        spec, out = Path(place) / "spec.json", Path(place) / "ran.json"
        spec.write_bytes(msgspec.json.encode(LoopTask(cases, task.seconds)))
        taken = record(
            StacksPlan(
                rate_hz=RATE_HZ,
                native=True,
                command=command,
                argv=(sys.executable, "-m", "kdaprof.probe.loop", str(spec), str(out)),
            ),
            MonotonicClock(),
            start=lambda argv: Command(argv, stdout=sys.stderr),
            leave=lambda: None,
            last_ns=last_ns,
        )
        ran = msgspec.json.decode(out.read_bytes(), type=list[Ran]) if out.exists() else []
    task.folder.mkdir(parents=True, exist_ok=True)
    seen = write_recording(taken, task.folder, intervals=ran, anonymous=anonymous)
    code = None if taken.record.child is None else taken.record.child.exit
    failed = [] if code == 0 else [f"the untimed repeat ended with exit code {code}"]
    return [f"stacks of {task.cells[0].path}, untimed ({task.folder}):", *terminal_lines(seen), *failed]
