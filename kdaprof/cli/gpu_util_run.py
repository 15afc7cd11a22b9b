"""The part of `kdaprof gpu-util` that watches: choose the cards, sample, derive, write, print."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kdaprof.cli.ending import after_command, tell
from kdaprof.cli.gpu_util_live import LiveLine
from kdaprof.cli.gpu_util_show import derived, forget_parts, print_view, write_all
from kdaprof.errors import Exit, KdaprofError, UnavailableError
from kdaprof.instruments import environment
from kdaprof.instruments.clock import Clock, MonotonicClock
from kdaprof.instruments.nvml import Nvml, open_nvml
from kdaprof.instruments.reading import Reading
from kdaprof.instruments.watch.cards import Chosen, choose
from kdaprof.instruments.watch.command import Command, check_command
from kdaprof.instruments.watch.people import Family
from kdaprof.instruments.watch.spool import Spool
from kdaprof.instruments.watch.watch import WatchOutcome, WatchPlan, watch
from kdaprof.runs.atomic import TargetError
from kdaprof.runs.environment import anonymised_argv, scrub
from kdaprof.runs.ids import new_run_id
from kdaprof.runs.store import open_target
from kdaprof.runs.util import UTIL_FILE
from kdaprof.runs.util_file import parts_of
from kdaprof.runs.watch import WatchRecord, forget_begun, write_begun


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user typed."""

    hz: float
    gpus: str | None
    duration_s: float | None
    pid: int | None
    out: Path | None
    force: bool
    anonymous: bool
    steps: Path | None
    as_json: bool
    argv: tuple[str, ...]
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a test replaces: NVML, clock, variables."""

    nvml: Callable[[], Reading[Nvml]] = open_nvml
    clock: Clock = field(default_factory=MonotonicClock)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


def watch_and_show(wanted: Wanted, around: Surroundings | None = None) -> int:
    """Watch to the end; returns the exit code, the command's own where there is one.

    Errors: UnavailableError without NVML or GPU and without a command; TargetError and UsageError before anything
    is sampled.
    """
    around = around or Surroundings()
    nvml = around.nvml()
    try:
        return _watch(wanted, around, nvml)
    finally:
        if nvml.value is not None:
            nvml.value.close()


def _watch(wanted: Wanted, around: Surroundings, nvml: Reading[Nvml]) -> int:
    chosen = _choose(wanted, around, nvml)
    if not chosen.cards:
        return _unwatched(wanted, around, chosen)
    folder = wanted.out or Path("runs") / new_run_id("gpu-util")
    if wanted.argv:
        check_command(wanted.argv)
    if wanted.pid is not None:
        Family(wanted.pid)  # one that is not there costs no older watch
    open_target(folder, force=wanted.force)
    forget_parts(folder)
    for note in chosen.notes:
        tell(note)
    spool = Spool(folder / UTIL_FILE)
    shown = sys.stderr.isatty() and not wanted.as_json
    live = LiveLine(spool, sys.stderr, how="off" if not shown else "lines" if wanted.argv else "redrawn")
    try:
        outcome = watch(
            _plan(wanted), chosen.cards, live, around.clock, start=_starter(wanted), leave=_leave, told=tell,
            begun=lambda record: write_begun(folder, _hidden(wanted, replace(record, notes=chosen.notes))),
        )  # fmt: skip
    except KdaprofError:  # nothing was watched: the place is as empty as before
        spool.drop()
        forget_begun(folder)
        raise
    finally:
        live.end()
        failure = _closed(spool)
    record = _record(wanted, outcome, chosen, failure)
    problem = outcome.failure or failure
    code = _code(record, outcome, problem)
    with after_command(bool(wanted.argv)):
        _show(wanted, record, folder, problem)
    return code


def _show(wanted: Wanted, record: WatchRecord, folder: Path, problem: KdaprofError | None) -> None:
    """Derive, write and print what there is."""
    if record.samples_taken == 0 or (problem is not None and not parts_of(folder / UTIL_FILE)):
        tell(str(problem or "the command ended before the first sample"))
        forget_begun(folder)
        return
    try:
        seen = derived(record, folder, wanted.steps)
    except KdaprofError as error:
        if wanted.steps is None:
            raise
        tell(f"not joined: {error}")
        seen = derived(record, folder, None)
    if problem is None:
        write_all(folder, seen)
        forget_begun(folder)
    else:
        tell(str(problem))
    print_view(seen, as_json=wanted.as_json, folder=folder, beside_command=bool(wanted.argv))


def _choose(wanted: Wanted, around: Surroundings, nvml: Reading[Nvml]) -> Chosen:
    """The cards; none, with the reason, where a command runs anyway."""
    try:
        if nvml.value is None:
            raise UnavailableError(f"no NVML: {nvml.reason}: `kdaprof doctor` says what to do")
        return choose(nvml.value, wanted.gpus, around.environ)
    except UnavailableError as error:
        if not wanted.argv:
            raise
        return Chosen((), (f"{error}; the command runs unwatched",))


def _unwatched(wanted: Wanted, around: Surroundings, chosen: Chosen) -> int:
    """The command alone: a machine without NVML is no reason not to train."""
    for note in chosen.notes:
        tell(note)
    outcome = watch(_plan(wanted), (), _Nowhere(), around.clock, start=_starter(wanted), leave=_leave, told=tell)
    record = _record(wanted, outcome, chosen, None)
    if wanted.as_json:
        with after_command(bool(wanted.argv)):
            print_view(derived(record, None, None), as_json=True, folder=None, beside_command=True)
    return _code(record, outcome, None)


class _Nowhere:
    def tick(self, t_ns: int, late_ns: int) -> None:
        """No card, no sample."""

    def add(self, rows: Sequence[object]) -> None:
        """No card, no sample."""


def _plan(wanted: Wanted) -> WatchPlan:
    command = anonymised_argv(wanted.command, environment.secrets()) if wanted.anonymous else wanted.command
    return WatchPlan(hz=wanted.hz, command=command, duration_s=wanted.duration_s, pid=wanted.pid, argv=wanted.argv)


def _starter(wanted: Wanted) -> Callable[[Sequence[str]], Command]:
    # JSON stands alone on stdout, so that the command has to write elsewhere.
    return lambda argv: Command(argv, stdout=sys.stderr if wanted.as_json else None)


def _record(wanted: Wanted, outcome: WatchOutcome, chosen: Chosen, failure: KdaprofError | None) -> WatchRecord:
    problem = outcome.failure or failure
    notes = (*chosen.notes, *((f"sampling ended early: {problem}",) if problem is not None else ()))
    complete = outcome.record.complete and problem is None and bool(chosen.cards)
    return _hidden(wanted, replace(outcome.record, notes=notes, complete=complete))


def _hidden(wanted: Wanted, record: WatchRecord) -> WatchRecord:
    if not wanted.anonymous:
        return record
    # A process of somebody else says who works here.
    return replace(scrub(record, environment.secrets()), names=())


def _closed(spool: Spool) -> KdaprofError | None:
    try:
        spool.close()
    except TargetError as error:
        return error
    return None


def _code(record: WatchRecord, outcome: WatchOutcome, problem: KdaprofError | None) -> int:
    if record.child is not None:
        return record.child.exit if record.child.exit is not None else Exit.ERROR
    if outcome.interrupted:
        return Exit.INTERRUPTED
    if problem is not None or any(card.stopped for card in record.cards):
        return Exit.ERROR
    return Exit.OK


def _leave() -> None:
    sys.stderr.flush()
    os._exit(Exit.INTERRUPTED)
