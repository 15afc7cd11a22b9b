"""The part of `kdaprof stacks` that records: attach, wait, derive, write, print."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kdaprof.analysis.stacks_anonymous import anonymous_trace
from kdaprof.analysis.stacks_document import StacksView, stacks_document, stacks_view
from kdaprof.analysis.stacks_holds import NO_STOPS
from kdaprof.analysis.stacks_speedscope import speedscope
from kdaprof.analysis.stacks_trace import last_ns
from kdaprof.analysis.util_join import Interval
from kdaprof.cli.console import err_console, out_console
from kdaprof.cli.ending import after_command, tell
from kdaprof.cli.stacks_show import intervals_during, show
from kdaprof.errors import Exit, KdaprofError
from kdaprof.instruments import environment
from kdaprof.instruments.clock import Clock, MonotonicClock
from kdaprof.instruments.stacks import Recording, SpawnSpy, StacksPlan, check_process, record
from kdaprof.instruments.stacks_spy import PySpy, find_spy
from kdaprof.instruments.watch.command import Command, check_command
from kdaprof.report.stacks import markdown
from kdaprof.report.stacks_flame import flame_graph
from kdaprof.runs.atomic import write_bytes, write_text
from kdaprof.runs.codec import dumps, write_document
from kdaprof.runs.environment import anonymised_argv, scrub
from kdaprof.runs.ids import new_run_id
from kdaprof.runs.older import make_way
from kdaprof.runs.stacks import (
    FLAME_FILE,
    SPEEDSCOPE_FILE,
    STACKS_FILE,
    STACKS_FILES,
    STACKS_KIND,
    StacksRecord,
)
from kdaprof.runs.stacks_file import write_holds, write_threads, write_trace
from kdaprof.runs.store import REPORT_FILE, open_target


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a test replaces: py-spy and the clock."""

    spawn: SpawnSpy = PySpy
    find: Callable[[], str] = find_spy
    clock: Clock = field(default_factory=MonotonicClock)


def record_and_show(
    plan: StacksPlan,
    *,
    out: Path | None,
    force: bool,
    steps: Path | None,
    as_json: bool,
    anonymous: bool = False,
    around: Surroundings | None = None,
) -> int:
    """Record to the end; returns the exit code, the command's own where there is one.

    Errors: UnavailableError without py-spy and without a command; TargetError and UsageError before anything runs.
    """
    around = around or Surroundings()
    folder = out or Path("runs") / new_run_id("stacks")
    if plan.argv:
        check_command(plan.argv)
    elif plan.pid is not None:
        check_process(plan.pid)
        around.find()
    open_target(folder, force=force)
    _forget_older(folder)
    # JSON stands alone on stdout, so that the command has to write elsewhere.
    taken = record(
        plan,
        around.clock,
        start=lambda argv: Command(argv, stdout=sys.stderr if as_json else None),
        spawn=around.spawn,
        leave=_leave,
        last_ns=last_ns,
        told=tell,
    )
    seen: StacksView | None = None
    with after_command(bool(plan.argv)):
        seen = write_recording(taken, folder, intervals=_intervals(steps, taken.record), anonymous=anonymous)
        _print(seen, folder, as_json=as_json, beside_command=bool(plan.argv))
    return _code(taken, seen)


def write_recording(
    taken: Recording, folder: Path, *, intervals: Sequence[Interval] = (), anonymous: bool = False
) -> StacksView:
    """Derive a recording, joined with what ran when (monotonic), and write all its files.

    Errors: TargetError; BadFileError when the trace cannot be read.
    """
    if anonymous:
        taken = _without_names(taken)
    seen = stacks_view(taken.record, taken.trace, taken.threads, taken.holds, intervals=intervals)
    if taken.trace is not None:
        write_trace(folder, taken.trace)
        write_threads(folder, taken.threads)
        if taken.holds is not None:
            write_holds(folder, taken.holds)
        write_text(folder / FLAME_FILE, flame_graph(seen.stacks, seen.stops or NO_STOPS))
        name = " ".join(taken.record.command)
        write_bytes(folder / SPEEDSCOPE_FILE, dumps(speedscope(seen.stacks, name=name, tool=taken.record.tool)))
    body = stacks_document(seen)
    del body["schema"]
    write_document(folder / STACKS_FILE, STACKS_KIND, body)
    write_text(folder / REPORT_FILE, markdown(seen))
    return seen


def _forget_older(folder: Path) -> None:
    """Take away what an older recording left beside its report: its picture or stops must not pass for this one's."""
    make_way(*(folder / name for name in STACKS_FILES))


def _intervals(steps: Path | None, record: StacksRecord) -> list[Interval]:
    if steps is None:
        return []
    try:
        return intervals_during(steps, record)
    except KdaprofError as error:
        tell(f"not joined: {error}")
        return []


def _print(seen: StacksView, folder: Path, *, as_json: bool, beside_command: bool) -> None:
    show(seen, as_json=as_json, beside_command=beside_command)
    if seen.record.missing is None and not as_json:
        console = err_console() if beside_command else out_console()
        console.print(f"{folder}: {STACKS_FILE}, {FLAME_FILE}, {SPEEDSCOPE_FILE}, {REPORT_FILE}", soft_wrap=True)


def _without_names(taken: Recording) -> Recording:
    """The same without host, user, home and paths."""
    secrets = environment.secrets()
    record = scrub(replace(taken.record, command=anonymised_argv(taken.record.command, secrets)), secrets)
    trace = None if taken.trace is None else anonymous_trace(taken.trace, secrets)
    return replace(taken, record=record, trace=trace, threads=scrub(taken.threads, secrets))


def _code(taken: Recording, seen: StacksView | None) -> int:
    record = taken.record
    if record.child is not None:
        return record.child.exit if record.child.exit is not None else Exit.ERROR
    if taken.interrupted:
        return Exit.INTERRUPTED
    if record.missing is not None:
        return Exit.UNFIT if record.missing.kind == "refused" else Exit.ERROR
    return Exit.INCONCLUSIVE if seen is not None and seen.verdict == "unusable" else Exit.OK


def _leave() -> None:
    sys.stderr.flush()
    os._exit(Exit.INTERRUPTED)
