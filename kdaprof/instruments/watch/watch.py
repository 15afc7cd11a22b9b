"""One watch from its first sample to its record: alone, beside a process, or around a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kdaprof import __version__
from kdaprof.errors import KdaprofError
from kdaprof.instruments.clock import Clock, clock_pair
from kdaprof.instruments.gpm import GpmMeter
from kdaprof.instruments.nvml import NvmlDevice
from kdaprof.instruments.watch.cards import Card
from kdaprof.instruments.watch.command import Command, handled, process_cpu_ns
from kdaprof.instruments.watch.extras import (
    BUFFER_SHARE,
    ENERGY_SHARE,
    GPM_PERIOD_NS,
    GPM_SHARE,
    PEOPLE_SHARE,
    BufferRows,
    EnergyRows,
    GpmRows,
    ProcessRows,
    ThrottleRows,
)
from kdaprof.instruments.watch.loop import SampleLoop, Sink
from kdaprof.instruments.watch.pace import OWN_SHARE, SLOW_PERIOD_NS, Budget, Pace, share_at
from kdaprof.instruments.watch.people import Family
from kdaprof.instruments.watch.taker import Extra, SampleTaker
from kdaprof.runs.watch import ProcessName, SeriesEnd, WatchedCard, WatchRecord, WrappedCommand

_ENDS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """What was asked for. `argv` is the command to run inside the watch, () for none."""

    hz: float
    command: tuple[str, ...]
    duration_s: float | None = None
    pid: int | None = None
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOutcome:
    """The record, and how the watch ended: `failure` is why sampling broke off, `interrupted` that a signal asked."""

    record: WatchRecord
    failure: KdaprofError | None
    interrupted: bool


def watch(
    plan: WatchPlan,
    cards: Sequence[Card],
    sink: Sink,
    clock: Clock,
    *,
    start: Callable[[Sequence[str]], Command] = Command,
    leave: Callable[[], None],
    told: Callable[[str], None],
    begun: Callable[[WatchRecord], None] = lambda record: None,
) -> WatchOutcome:
    """Watch until the plan's end: its duration, its process, its command, or a signal.

    `begun` gets the record of the beginning, before the first sample. `leave` is called at the second request to end
    where there is no command; `told` gets what a user must know at once. Signal handlers are put back. Errors:
    UsageError when the command cannot be started or the process is not there; what `begun` raises.
    """
    family = None if plan.pid is None else Family(plan.pid)
    running = _Running(plan, cards, sink, clock, family)
    try:
        begun(running.beginning())
        return running.through(start, leave, told)
    finally:
        running.close()


class _Running:
    def __init__(self, plan: WatchPlan, cards: Sequence[Card], sink: Sink, clock: Clock, family: Family | None) -> None:
        self._plan, self._cards, self._clock = plan, tuple(cards), clock
        self._stop = threading.Event()
        self._asked = 0
        self._command: Command | None = None
        self._early: list[int] = []
        self._failure: KdaprofError | None = None
        self._open = [card for card in self._cards if card.device.value is not None]
        self._pair = clock_pair(clock)
        self._meters: list[GpmMeter] = []
        self._people: list[ProcessRows] = []
        self._budget = Budget(share_at(OWN_SHARE, plan.hz), process_cpu_ns)
        # Asked before anything can be lost.
        devices = [card.device.value for card in self._open if card.device.value is not None]
        self._identities = [(device.name().value, device.pci_bus_id().value) for device in devices]
        self._loop = SampleLoop(
            [self._taker(device, family) for device in devices],
            clock,
            plan.hz,
            sink,
            wait=self._stop.wait,
            over=None if family is None else lambda: not family.alive(),
            duration_ns=None if plan.duration_s is None else round(plan.duration_s * 1e9),
        )

    def _taker(self, device: NvmlDevice, family: Family | None) -> SampleTaker:
        meter = GpmMeter(device)
        self._meters.append(meter)
        # A function's first call is dear and slow (milliseconds together): not in the first sample.
        SampleTaker(device, [ThrottleRows(device)]).take(self._pair.monotonic_ns)
        if meter.missing is None:
            meter.read()
        wanted = None if family is None else family.holds
        people = ProcessRows(device, wanted, pace=self._pace(PEOPLE_SHARE), shares=self._pace(PEOPLE_SHARE))
        self._people.append(people)
        # GPM first: its figures end when it is read, and its rows say when the sample began.
        gpm: list[Extra] = []
        if meter.missing is None:
            gpm.append(GpmRows(device, meter, self._pace(GPM_SHARE, period_ns=GPM_PERIOD_NS)))
        extras: list[Extra] = [
            *gpm,
            ThrottleRows(device),
            people,
            EnergyRows(device, self._pace(ENERGY_SHARE)),
            BufferRows(device, self._pair, pace=self._pace(BUFFER_SHARE, first_ns=SLOW_PERIOD_NS)),
        ]
        return SampleTaker(device, extras)

    def _pace(self, share: float, *, period_ns: int = SLOW_PERIOD_NS, first_ns: int = 0) -> Pace:
        own = share_at(share, self._plan.hz) / len(self._open)
        return Pace(own, period_ns=period_ns, first_ns=first_ns, budget=self._budget)

    def beginning(self) -> WatchRecord:
        """What is known before the first sample."""
        now = self._pair
        return WatchRecord(
            tool=f"kdaprof {__version__}",
            command=self._plan.command,
            complete=False,
            hz=self._plan.hz,
            started_unix_ns=now.unix_ns,
            started_monotonic_ns=now.monotonic_ns,
            ended_unix_ns=now.unix_ns,
            ended_monotonic_ns=now.monotonic_ns,
            samples_due=0,
            samples_taken=0,
            own_cpu_ns=None,
            cards=self._seen(),
            pid=self._plan.pid,
            child=WrappedCommand(argv0=self._plan.argv[0], exit=None) if self._plan.argv else None,
        )

    def through(
        self, start: Callable[[Sequence[str]], Command], leave: Callable[[], None], told: Callable[[str], None]
    ) -> WatchOutcome:
        cpu_at_start = process_cpu_ns()
        began = self._pair
        thread = threading.Thread(target=self._sample, args=(told,), name="kdaprof-gpu-util", daemon=True)
        code: int | None = None
        with handled(lambda number: self._signal(number, leave)):
            self._loop.begin()
            if self._open:
                thread.start()
            try:
                if self._plan.argv:
                    code = self._run(start)
                elif self._open:
                    thread.join()
            finally:
                self._stop.set()
                if thread.ident is not None:
                    thread.join()
            ended = clock_pair(self._clock)
            own_cpu_ns = process_cpu_ns() - cpu_at_start
        # Inside a command a signal is the command's affair: it ended by itself, whatever made it.
        interrupted = self._asked > 0 and not self._plan.argv and self._plan.duration_s is not None
        end_ns = self._loop.end_ns if self._loop.end_ns is not None else ended.monotonic_ns
        seen = self._seen()
        record = replace(
            self.beginning(),
            complete=not interrupted and self._failure is None and not any(card.stopped for card in seen),
            started_unix_ns=began.to_unix_ns(self._loop.start_ns),
            started_monotonic_ns=self._loop.start_ns,
            ended_unix_ns=ended.to_unix_ns(end_ns),
            ended_monotonic_ns=end_ns,
            samples_due=self._loop.due if self._open else 0,
            samples_taken=self._loop.taken,
            own_cpu_ns=own_cpu_ns,
            cards=seen,
            names=tuple(
                ProcessName(pid=pid, name=name)
                for pid, name in sorted({k: v for people in self._people for k, v in people.names.items()}.items())
            ),
            child=WrappedCommand(argv0=self._plan.argv[0], exit=code) if self._plan.argv else None,
        )
        return WatchOutcome(record=record, failure=self._failure, interrupted=interrupted)

    def close(self) -> None:
        for meter in self._meters:
            meter.close()

    def _run(self, start: Callable[[Sequence[str]], Command]) -> int:
        command = start(self._plan.argv)
        self._command = command
        try:
            for number in self._early:
                command.signal(number)
            return command.wait()
        finally:
            command.kill()

    def _sample(self, told: Callable[[str], None]) -> None:
        try:
            self._loop.run()
        except Exception as error:  # a thread that dies silently would leave a watch that looks complete
            unnamed = KdaprofError(f"sampling failed ({type(error).__name__}: {error}); this is a fault of kdaprof")
            self._failure = error if isinstance(error, KdaprofError) else unnamed
            if self._plan.argv:
                told(f"{self._failure}; the command goes on unwatched")

    def _signal(self, number: int, leave: Callable[[], None]) -> None:
        """In the main thread, which waits for the sampling thread or for the command and holds no lock."""
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

    def _seen(self) -> tuple[WatchedCard, ...]:
        numbers = {id(card): number for number, card in enumerate(self._open)}
        return tuple(self._card(card, numbers.get(id(card))) for card in self._cards)

    def _card(self, card: Card, number: int | None) -> WatchedCard:
        device = card.device.value
        if device is None or number is None:
            end = SeriesEnd(reason=card.device.reason or "cannot be opened", at=self._loop.start_ns)
            return WatchedCard(uuid=None, index=card.index, name=None, pci_bus_id=None, stopped=end)
        stopped = self._loop.stopped.get(number)
        identity = self._identities[number]
        return WatchedCard(
            uuid=device.uuid,
            index=card.index,
            name=identity[0],
            pci_bus_id=identity[1],
            stopped=None if stopped is None else SeriesEnd(reason=stopped.reason, at=stopped.t_ns),
            gpm_missing=self._meters[number].missing,
        )
