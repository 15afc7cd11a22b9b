"""One recording of host stacks: beside a process or around a command, with a watchdog over py-spy.

py-spy swallows the exit code of a command that it starts, so the command is ours and py-spy only attaches.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kdaprof import __version__
from kdaprof.errors import KdaprofError, UsageError
from kdaprof.instruments.clock import Clock, clock_pair
from kdaprof.instruments.stacks_holds import LOOK_EVERY_S, HoldMeter
from kdaprof.instruments.stacks_spy import PySpy, Spy, counts, refusal
from kdaprof.instruments.stacks_stopped import StopMeter, stopped_text
from kdaprof.instruments.stacks_threads import PROC, ThreadMeter, cpu_ns, state
from kdaprof.instruments.watch.command import Command, handled, process_cpu_ns
from kdaprof.runs.stacks import Holds, NoStacks, StacksRecord, ThreadTicks
from kdaprof.runs.watch import WrappedCommand

STUCK_NS = 5_000_000_000
"""A target that a tracer holds and that has not run for so long is freed. Native stacks of a big process take ms."""

FINISH_S = 20.0
"""How long py-spy may take to write what it has."""

_AGAIN = "record again once it is there; the command itself ran, unwatched"
_METER_HZ = 100
_LOOK_EVERY = 10  # ticks of the meter between two looks at the target's state
_ENDS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksPlan:
    """What was asked for: a process `pid`, or a command `argv` to run. `command` is kdaprof's own line."""

    rate_hz: int
    native: bool
    command: tuple[str, ...]
    duration_s: float | None = None
    pid: int | None = None
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The record, py-spy's Chrome trace (None without), the threads' counters, and whether a signal ended it.

    `holds` are the stops that native stacks made; None for Python stacks, which stop nothing.
    """

    record: StacksRecord
    trace: bytes | None
    threads: tuple[ThreadTicks, ...]
    holds: Holds | None
    interrupted: bool


class SpawnSpy(Protocol):
    """Attaches py-spy to a process."""

    def __call__(self, pid: int, *, rate_hz: int, native: bool) -> Spy:
        """The running py-spy. Errors: UnavailableError when it is not installed."""
        ...


def check_process(pid: int, proc: Path = PROC) -> None:
    """Raise UsageError for a process that is not there, or stopped, before anything older makes way for a recording."""
    letter = state(pid, proc)
    if letter in (None, "Z"):
        raise UsageError(f"--pid {pid}: no such process; is it in another container?")
    if letter == "T":
        raise UsageError(f"--pid {pid}: {stopped_text(pid)}")


def record(
    plan: StacksPlan,
    clock: Clock,
    *,
    start: Callable[[Sequence[str]], Command] = Command,
    spawn: SpawnSpy = PySpy,
    leave: Callable[[], None],
    last_ns: Callable[[bytes], int | None],
    told: Callable[[str], None] = lambda text: None,
    proc: Path = PROC,
) -> Recording:
    """Record until the plan's end: its duration, the end of its process or command, or a signal.

    `last_ns` reads the last time of py-spy's trace, from its own 0; `leave` is called at a second request to end
    beside a process; `told` gets what a user must know at once. Signal handlers are put back. Errors: UsageError when
    the command cannot be started or the process is not there, or stopped; UnavailableError without py-spy and without
    a command.
    """
    return _Session(plan, clock, spawn, told, proc).through(start, leave, last_ns)


class _Session:
    def __init__(
        self, plan: StacksPlan, clock: Clock, spawn: SpawnSpy, told: Callable[[str], None], proc: Path
    ) -> None:
        self._plan, self._clock, self._spawn, self._told, self._proc = plan, clock, spawn, told, proc
        self._stop = threading.Event()
        self._asked = 0
        self._early: list[int] = []
        self._command: Command | None = None
        self._notes: list[str] = []
        self._spy_cpu_ns: int | None = None
        self._held_since_ns: int | None = None
        self._ran_ns = -1
        self._ended_ns: int | None = None

    def through(
        self,
        start: Callable[[Sequence[str]], Command],
        leave: Callable[[], None],
        last_ns: Callable[[bytes], int | None],
    ) -> Recording:
        cpu_at_start, pair = process_cpu_ns(), clock_pair(self._clock)
        code: int | None = None
        spy: Spy | None = None
        missing: NoStacks | None = None
        with handled(lambda number: self._signal(number, leave)):
            pid = self._target(start)
            meter = ThreadMeter(pid, self._clock, self._proc)
            holds = HoldMeter(pid, self._clock, self._proc) if self._plan.native else None
            began_ns = self._clock.now_ns()
            try:
                try:
                    spy = self._spawn(pid, rate_hz=self._plan.rate_hz, native=self._plan.native)
                except KdaprofError as error:
                    if self._command is None:
                        raise
                    missing = NoStacks(kind="not-supported", text=str(error), next=_AGAIN)
                code = self._watched(spy, pid, meter, holds, began_ns)
                ended_ns = self._ended_ns if self._ended_ns is not None else self._clock.now_ns()
                found = None if spy is None else spy.trace()
                output = "" if spy is None else spy.output()
            finally:
                if self._command is not None:
                    self._command.kill()
                if spy is not None:
                    spy.close()
        trace = None if found is None else found[0]
        last = None if trace is None else last_ns(trace)
        if missing is None and last is None:
            missing, trace = refusal(output, command=bool(self._plan.argv)), None
        anchor = None
        if found is not None and last is not None:
            anchor = _anchor(began_ns, pair.to_monotonic_ns(found[1]), last)
        said = counts(output)
        argv = self._plan.argv
        return Recording(
            record=StacksRecord(
                tool=f"kdaprof {__version__}",
                command=self._plan.command,
                complete=missing is None and not (self._asked and not argv and self._plan.duration_s is not None),
                pid=pid,
                rate_hz=self._plan.rate_hz,
                native=self._plan.native,
                started_unix_ns=pair.to_unix_ns(began_ns),
                started_monotonic_ns=began_ns,
                ended_monotonic_ns=ended_ns,
                anchor_ns=None if anchor is None else anchor[0],
                anchor_uncertainty_ns=None if anchor is None else anchor[1],
                samples=None if said is None else said[0],
                errors=None if said is None else said[1],
                spy_cpu_ns=self._spy_cpu_ns,
                own_cpu_ns=process_cpu_ns() - cpu_at_start,
                missing=missing,
                child=WrappedCommand(argv0=argv[0], exit=code) if argv else None,
                notes=tuple(self._notes),
            ),
            trace=trace,
            threads=meter.ticks(),
            holds=None if holds is None else holds.holds(),
            interrupted=self._asked > 0 and not argv and self._plan.duration_s is not None,
        )

    def _target(self, start: Callable[[Sequence[str]], Command]) -> int:
        if self._plan.argv:
            self._command = start(self._plan.argv)
            for number in self._early:
                self._command.signal(number)
            return self._command.pid
        assert self._plan.pid is not None
        check_process(self._plan.pid, self._proc)
        return self._plan.pid

    def _watched(
        self, spy: Spy | None, pid: int, meter: ThreadMeter, holds: HoldMeter | None, began_ns: int
    ) -> int | None:
        """Wait for the end of what is watched; the command's exit code, if there is one."""
        failed: list[BaseException] = []

        def watching() -> None:
            try:
                if spy is not None:
                    self._watch(spy, pid, meter, holds, began_ns)
            except BaseException as error:  # raised again in the main thread
                failed.append(error)

        thread = threading.Thread(target=watching, name="kdaprof-stacks", daemon=True)
        thread.start()
        try:
            code = None
            if self._command is not None:
                code = self._command.wait()
            else:
                thread.join()
        finally:
            self._stop.set()
            thread.join()
        if failed:
            raise failed[0]
        return code

    def _watch(self, spy: Spy, pid: int, meter: ThreadMeter, holds: HoldMeter | None, began_ns: int) -> None:
        before = state(pid, self._proc)
        limit_ns = None if self._plan.duration_s is None else began_ns + round(self._plan.duration_s * 1e9)
        period_s = 1 / min(_METER_HZ, self._plan.rate_hz)
        last, freed = before, False
        stops = StopMeter(pid, self._told)
        due_ns, ticks = began_ns, 0
        while not self._stop.wait(period_s if holds is None else LOOK_EVERY_S) and not spy.ended():
            if holds is not None:
                last = holds.look()
                if self._clock.now_ns() < due_ns:
                    continue
            due_ns = self._clock.now_ns() + round(period_s * 1e9)
            meter.tick()
            ticks += 1
            if ticks % _LOOK_EVERY == 0:
                self._spy_cpu_ns = cpu_ns(spy.pid, self._proc) or self._spy_cpu_ns
                last = state(pid, self._proc)
            stops.see(last, self._clock.now_ns())
            if last in (None, "Z") or (limit_ns is not None and self._clock.now_ns() >= limit_ns):
                break
            if self._stuck(last, meter):
                freed = True
                break
        meter.tick()
        self._ended_ns = self._clock.now_ns()
        note = stops.note(self._ended_ns)
        if note is not None:
            self._notes.append(note)
        if not spy.finish(0.0 if freed else FINISH_S):
            self._notes.append("py-spy did not end when asked and was killed; what it had recorded is lost")
        self._free(pid, was_stopped="T" in (before, last))

    def _stuck(self, now: str | None, meter: ThreadMeter) -> bool:
        """Whether a tracer holds the target and it has not run for long."""
        ran, t_ns = meter.run_ns(), self._clock.now_ns()
        if now != "t" or ran != self._ran_ns or self._held_since_ns is None:
            self._held_since_ns = t_ns
        self._ran_ns = ran
        return t_ns - self._held_since_ns > STUCK_NS

    def _free(self, pid: int, *, was_stopped: bool) -> None:
        """Let the target run again where py-spy left it stopped; who was stopped by others stays so.

        Without --native py-spy stops nothing, so that nothing is undone.
        """
        if not self._plan.native or was_stopped or state(pid, self._proc) not in ("T", "t"):
            return
        try:
            os.kill(pid, signal.SIGCONT)
        except OSError as error:
            self._notes.append(f"process {pid} is stopped and cannot be continued ({error.strerror}): kill -CONT {pid}")
            return
        self._notes.append(f"py-spy had left process {pid} stopped; it was continued (SIGCONT)")

    def _signal(self, number: int, leave: Callable[[], None]) -> None:
        if self._plan.argv:
            if self._command is None:
                self._early.append(number)
            else:
                self._command.signal(number)
        elif number in _ENDS:
            self._asked += 1
            if self._asked > 1:
                leave()
            self._stop.set()


def _anchor(spawned_ns: int, written_ns: int, last_ns: int) -> tuple[int, int]:
    """Monotonic time of the trace's 0, and to within what: after py-spy was started, before it wrote its end.

    The last event is stamped just before the file is written, so that its 0 lies no later than write − last.
    """
    latest = max(spawned_ns, written_ns - last_ns)
    return (spawned_ns + latest) // 2, (latest - spawned_ns + 1) // 2
