"""The loop that samples one card or many at a steady rate. Its thread, its clock and its waiting are the caller's.

A card that is lost, or whose sensor breaks its word, ends its own series with the reason; the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from kdaprof.instruments.clock import Clock
from kdaprof.instruments.watch.schedule import checked_hz, due_ns, next_due, samples_due
from kdaprof.runs.util import UtilReading


@dataclass(frozen=True, slots=True)
class Stopped:
    """A series that ended before it was stopped: the reason, and the monotonic time."""

    reason: str
    t_ns: int


class Taker(Protocol):
    """Takes the readings of one card."""

    def take(self, t_ns: int) -> tuple[list[UtilReading], str | None]:
        """The rows of one sample at `t_ns`, and why the series must end, if it must (the card is lost)."""
        ...

    def last(self, t_ns: int) -> list[UtilReading]:
        """What is read once more when the series ends."""
        ...


class Sink(Protocol):
    """Where samples go."""

    def tick(self, t_ns: int, late_ns: int) -> None:
        """A sample begins, so much later than it was due."""
        ...

    def add(self, rows: Sequence[UtilReading]) -> None:
        """The rows of one card's sample."""
        ...


class SampleLoop:
    """Samples `takers` until `wait` says stop, `over` says so, `until_ns` is reached or no card is left.

    `wait(seconds)` waits at most that long and returns True when the loop is to end; a virtual clock moves there.
    A fault of the sink (a full disk) ends the loop and is raised by `run`.
    """

    def __init__(
        self,
        takers: Sequence[Taker],
        clock: Clock,
        hz: float,
        sink: Sink,
        *,
        wait: Callable[[float], bool],
        over: Callable[[], bool] | None = None,
        duration_ns: int | None = None,
        thread_cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        """Errors: UsageError when `hz` is not in (0, 100]."""
        self._takers = tuple(takers)
        self._clock = clock
        self._hz = checked_hz(hz)
        self._sink = sink
        self._wait = wait
        self._over = over
        self._duration_ns = duration_ns
        self._thread_cpu_ns = thread_cpu_ns
        self._live = list(range(len(self._takers)))
        self.stopped: dict[int, Stopped] = {}
        self.start_ns = 0
        self.end_ns: int | None = None
        self.taken = 0
        self.own_cpu_ns = 0

    def begin(self) -> None:
        """Set t0 to now; `run` does it where nobody has."""
        self.start_ns = self._clock.now_ns()

    @property
    def due(self) -> int:
        """Samples due from t0 to the end (to now while it runs)."""
        end = self._clock.now_ns() if self.end_ns is None else self.end_ns
        return samples_due(self.start_ns, end, self._hz)

    def run(self) -> None:
        """Sample until the end; raises what the sink raises."""
        if not self.start_ns:
            self.begin()
        cpu_at_start = self._thread_cpu_ns()
        try:
            self._sample()
            self._last()
        finally:
            self.own_cpu_ns = self._thread_cpu_ns() - cpu_at_start
            if self.end_ns is None:
                self.end_ns = self._clock.now_ns()

    def _sample(self) -> None:
        number = 0
        while True:
            due = due_ns(self.start_ns, number, self._hz)
            if self._duration_ns is not None and due - self.start_ns > self._duration_ns:
                self._until(self.start_ns + self._duration_ns)
                return
            if self._until(due):
                return
            now = self._clock.now_ns()
            self._sink.tick(now, max(0, now - due))
            self.taken += 1
            for index in self._live[:]:
                self._one(index)
            if not self._live:
                self.end_ns = max(stopped.t_ns for stopped in self.stopped.values())
                return
            if self._over is not None and self._over():
                return
            number = next_due(self.start_ns, self._clock.now_ns(), self._hz, after=number)

    def _last(self) -> None:
        """The end of every series that goes on to the end."""
        t_ns = self._clock.now_ns()
        for index in self._live:
            rows: list[UtilReading] = []
            with suppress(Exception):  # all samples are there: a sensor that fails now has nothing to end
                rows = self._takers[index].last(t_ns)
            self._sink.add(rows)

    def _until(self, t_ns: int) -> bool:
        """Wait until then; True when the loop is to end."""
        return self._wait(max(0, t_ns - self._clock.now_ns()) / 1e9)

    def _one(self, index: int) -> None:
        t_ns = self._clock.now_ns()
        try:
            rows, lost = self._takers[index].take(t_ns)
        except Exception as error:  # a sensor that breaks its word ends its series, not the run
            rows, lost = [], f"the sampler failed: {type(error).__name__}: {error}"
        self._sink.add(rows)
        if lost is not None:
            self.stopped[index] = Stopped(lost, t_ns)
            self._live.remove(index)
