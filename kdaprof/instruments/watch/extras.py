"""What is read beside the plain figures: limits, energy, GPM, who is on the card, the driver's own buffer.

All but the first are dear (per call on an H200: energy 3.4 ms, GPM 1 to 2.2, the buffer 1.6, shares of processes 1.4),
so each has a pace of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from kdaprof.instruments.clock import ClockPair
from kdaprof.instruments.conditions import name_of_process
from kdaprof.instruments.gpm import GpmActivity
from kdaprof.instruments.reading import Reading, missing
from kdaprof.instruments.sensor import BufferedSample, GpuProcess, GpuSensor
from kdaprof.instruments.watch.pace import Pace
from kdaprof.runs.conditions import LIMITING_REASONS
from kdaprof.runs.util import PROCESS_BYTES, PROCESS_UTIL, REASON_PREFIX, UtilReading, process_field

# Two GPM samples closer than this may have no counts between them.
GPM_PERIOD_NS = 100_000_000
GPM_SHARE, BUFFER_SHARE, PEOPLE_SHARE, ENERGY_SHARE = 0.0003, 0.00015, 0.0001, 0.00005
"""Of a core, at 2 Hz. Nothing is lost by a slow pace: GPM and energy count on, and the buffer keeps what it has."""

GPM_STARTS = "a GPM figure needs two samples, and this was the first"

_GPM_FIELDS = tuple(GpmActivity.__dataclass_fields__)
# The driver keeps some tens of seconds; anything that claims to be older or from the future is a wrong clock.
_BUFFER_PAST_NS = 120 * 1_000_000_000
_BUFFER_AHEAD_NS = 1_000_000_000


class GpmReader(Protocol):
    """A source of GPM activity since the last reading."""

    def read(self) -> Reading[GpmActivity]:
        """Activity since the last reading."""
        ...


class ThrottleRows:
    """`limited` (1 when a limit holds the clock back), and one row for each event reason that holds."""

    def __init__(self, sensor: GpuSensor) -> None:
        self._sensor = sensor

    def rows(self, t_ns: int, *, last: bool = False) -> Sequence[UtilReading]:
        """At every sample."""
        reading = self._sensor.throttle_reasons()
        if reading.value is None:
            return [_row(self._sensor, t_ns, "limited", None, reading.reason)]
        limited = float(not LIMITING_REASONS.isdisjoint(reading.value))
        named = [_row(self._sensor, t_ns, REASON_PREFIX + name, 1.0) for name in reading.value]
        return [_row(self._sensor, t_ns, "limited", limited), *named]


class EnergyRows:
    """The card's energy counter: at the start, now and then, and at the end."""

    def __init__(self, sensor: GpuSensor, pace: Pace) -> None:
        self._sensor = sensor
        self._pace = pace

    def rows(self, t_ns: int, *, last: bool = False) -> Sequence[UtilReading]:
        """One row where it is due. A card without a counter says so once."""
        if not self._pace.begins(t_ns, last=last):
            return ()
        reading = self._sensor.energy_j()
        if reading.value is None:
            self._pace.never_again()
        else:
            self._pace.ends(t_ns)
        return [_row(self._sensor, t_ns, "energy_j", reading.value, reading.reason)]


class GpmRows:
    """GPM activity since its last reading, a row a counter.

    A figure covers the time from the rows before it to its own, so the first reading, which covers what was before
    the series, has rows without a value.
    """

    def __init__(self, sensor: GpuSensor, meter: GpmReader, pace: Pace) -> None:
        self._sensor = sensor
        self._meter = meter
        self._pace = pace
        self._read_ns: int | None = None

    def rows(self, t_ns: int, *, last: bool = False) -> Sequence[UtilReading]:
        """Those that are due, and at the end what is left, unless it is too short to have counts."""
        too_soon = self._read_ns is not None and t_ns - self._read_ns < GPM_PERIOD_NS
        if too_soon or not self._pace.begins(t_ns, last=last):
            return ()
        first, self._read_ns = self._read_ns is None, t_ns
        activity = self._meter.read()
        self._pace.ends(t_ns)
        if first and activity.value is not None:
            activity = missing("no-data", GPM_STARTS)
        return [self._counter(t_ns, name, activity) for name in _GPM_FIELDS]

    def _counter(self, t_ns: int, name: str, activity: Reading[GpmActivity]) -> UtilReading:
        value = None if activity.value is None else getattr(activity.value, name)
        why = "this card gives no such figure" if activity.value is not None and value is None else activity.reason
        return _row(self._sensor, t_ns, f"gpm_{name}", value, why)


class ProcessRows:
    """Memory of each process on the card, and its SM share; with `wanted`, of those for which it holds."""

    def __init__(
        self,
        sensor: GpuSensor,
        wanted: Callable[[int], bool] | None = None,
        name_of: Callable[[int], str | None] = name_of_process,
        *,
        pace: Pace | None = None,
        shares: Pace | None = None,
    ) -> None:
        self._sensor = sensor
        self._wanted = wanted
        self._name_of = name_of
        self._pace = pace or Pace(PEOPLE_SHARE)
        self._shares_pace = shares or Pace(PEOPLE_SHARE)
        self.names: dict[int, str | None] = {}

    def rows(self, t_ns: int, *, last: bool = False) -> Sequence[UtilReading]:
        """Once a second at most; `processes` is how many there are, whoever is wanted."""
        if not self._pace.begins(t_ns):
            return ()
        listed = self._sensor.processes()
        self._pace.ends(t_ns)
        return self._rows_of(listed, t_ns)

    def _rows_of(self, listed: Reading[tuple[GpuProcess, ...]], t_ns: int) -> list[UtilReading]:
        if listed.value is None:
            return [_row(self._sensor, t_ns, "processes", None, listed.reason)]
        rows = [_row(self._sensor, t_ns, "processes", float(len(listed.value)))]
        if not listed.value:
            return rows
        shares = self._shares(t_ns)
        for process in listed.value:
            if self._wanted is not None and not self._wanted(process.pid):
                continue
            if process.pid not in self.names:
                self.names[process.pid] = self._name_of(process.pid)
            used = None if process.used_bytes is None else float(process.used_bytes)
            withheld = None if used is not None else "the driver withholds the memory of a process"
            rows.append(_row(self._sensor, t_ns, process_field(process.pid, PROCESS_BYTES), used, withheld))
            if process.pid in shares:
                rows.append(_row(self._sensor, t_ns, process_field(process.pid, PROCESS_UTIL), shares[process.pid]))
        return rows

    def _shares(self, t_ns: int) -> dict[int, float]:
        """SM share by process, where it is time to ask: that question is dear, the list is not."""
        if not self._shares_pace.begins(t_ns):
            return {}
        found = self._sensor.process_utilisation().value or ()
        self._shares_pace.ends(t_ns)
        return {share.pid: share.util for share in found}


class BufferRows:
    """The driver's own samples of utilisation as `util_buffer`, each at its own time: finer than slow polling."""

    def __init__(self, sensor: GpuSensor, pair: ClockPair, *, pace: Pace | None = None) -> None:
        self._sensor = sensor
        self._pair = pair
        self._pace = pace or Pace(BUFFER_SHARE)
        self._last_unix_ns: int | None = None

    def rows(self, t_ns: int, *, last: bool = False) -> Sequence[UtilReading]:
        """Once a second at most, and at the end: what came since. A card without a buffer says so once."""
        if self._last_unix_ns is None:
            # What was there before the watch is not part of it.
            self._last_unix_ns = self._pair.to_unix_ns(t_ns)
        if not self._pace.begins(t_ns, last=last):
            return ()
        reading = self._sensor.buffered_utilisation(self._last_unix_ns)
        if reading.value is None:
            self._pace.never_again()
            return [_row(self._sensor, t_ns, "util_buffer", None, reading.reason)]
        found = [_row(self._sensor, at_ns, "util_buffer", util) for at_ns, util in self._fresh(reading.value, t_ns)]
        self._pace.ends(t_ns)
        return found

    def _fresh(self, samples: Sequence[BufferedSample], t_ns: int) -> Iterator[tuple[int, float]]:
        for sample in samples:
            at_ns = self._pair.to_monotonic_ns(sample.unix_ns)
            known = self._last_unix_ns is not None and sample.unix_ns <= self._last_unix_ns
            if not known and t_ns - _BUFFER_PAST_NS <= at_ns <= t_ns + _BUFFER_AHEAD_NS:
                self._last_unix_ns = sample.unix_ns
                yield at_ns, sample.util


def _row(sensor: GpuSensor, t_ns: int, field: str, value: float | None, missing: str | None = None) -> UtilReading:
    return UtilReading(t_ns=t_ns, uuid=sensor.uuid, field=field, value=value, stale=False, missing=missing)
