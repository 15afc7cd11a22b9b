"""What is read beside the plain figures: why clocks are held back, who is on the card, the driver's own buffer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from kdaprof.instruments.clock import ClockPair
from kdaprof.instruments.conditions import name_of_process
from kdaprof.instruments.sensor import BufferedSample, GpuSensor
from kdaprof.runs.conditions import LIMITING_REASONS
from kdaprof.runs.util import PROCESS_BYTES, PROCESS_UTIL, REASON_PREFIX, UtilReading, process_field

SLOW_PERIOD_NS = 1_000_000_000
"""Processes and the buffer are looked at once a second at most: neither is cheap, and neither changes faster."""

# The driver keeps some tens of seconds; anything that claims to be older or from the future is a wrong clock.
_BUFFER_PAST_NS = 120 * 1_000_000_000
_BUFFER_AHEAD_NS = 1_000_000_000
_NEVER_NS = 2**62
_SHARE = 0.0005
_SLOWEST_NS = 10_000_000_000


class _Pace:
    """Lets a reading happen once a second, and less often where it is dear: at most `_SHARE` of a core."""

    def __init__(self, cpu_ns: Callable[[], int]) -> None:
        self._cpu_ns = cpu_ns
        self._due_ns: int | None = None
        self._began_ns = 0

    def begins(self, t_ns: int) -> bool:
        if self._due_ns is not None and t_ns < self._due_ns:
            return False
        self._due_ns = t_ns + SLOW_PERIOD_NS
        self._began_ns = self._cpu_ns()
        return True

    def ends(self, t_ns: int) -> None:
        wanted = round((self._cpu_ns() - self._began_ns) / _SHARE)
        self._due_ns = t_ns + min(max(SLOW_PERIOD_NS, wanted), _SLOWEST_NS)

    def never_again(self) -> None:
        self._due_ns = _NEVER_NS


class ThrottleRows:
    """`limited` (1 when a limit holds the clock back), and one row for each event reason that holds."""

    def __init__(self, sensor: GpuSensor) -> None:
        self._sensor = sensor

    def rows(self, t_ns: int) -> Sequence[UtilReading]:
        """At every sample."""
        reading = self._sensor.throttle_reasons()
        if reading.value is None:
            return [_row(self._sensor, t_ns, "limited", None, reading.reason)]
        limited = float(not LIMITING_REASONS.isdisjoint(reading.value))
        named = [_row(self._sensor, t_ns, REASON_PREFIX + name, 1.0) for name in reading.value]
        return [_row(self._sensor, t_ns, "limited", limited), *named]


class ProcessRows:
    """Memory and SM share of each process on the card; with `wanted`, of those process ids for which it holds."""

    def __init__(
        self,
        sensor: GpuSensor,
        wanted: Callable[[int], bool] | None = None,
        name_of: Callable[[int], str | None] = name_of_process,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._sensor = sensor
        self._wanted = wanted
        self._name_of = name_of
        self._pace = _Pace(cpu_ns)
        self.names: dict[int, str | None] = {}

    def rows(self, t_ns: int) -> Sequence[UtilReading]:
        """Once a second at most; `processes` is how many there are, whoever is wanted."""
        if not self._pace.begins(t_ns):
            return ()
        rows = self._read(t_ns)
        self._pace.ends(t_ns)
        return rows

    def _read(self, t_ns: int) -> list[UtilReading]:
        listed = self._sensor.processes()
        if listed.value is None:
            return [_row(self._sensor, t_ns, "processes", None, listed.reason)]
        rows = [_row(self._sensor, t_ns, "processes", float(len(listed.value)))]
        if not listed.value:
            return rows
        shares = {share.pid: share.util for share in self._sensor.process_utilisation().value or ()}
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


class BufferRows:
    """The driver's own samples of utilisation as `util_buffer`, each at its own time: finer than slow polling."""

    def __init__(self, sensor: GpuSensor, pair: ClockPair, *, cpu_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self._sensor = sensor
        self._pair = pair
        self._pace = _Pace(cpu_ns)
        self._last_unix_ns: int | None = None

    def rows(self, t_ns: int) -> Sequence[UtilReading]:
        """Once a second at most: what came since. A card without a buffer says so once."""
        if not self._pace.begins(t_ns):
            return ()
        if self._last_unix_ns is None:
            # What was there before the watch is not part of it.
            self._last_unix_ns = self._pair.to_unix_ns(t_ns)
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
