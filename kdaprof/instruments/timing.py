"""One call timed from the host: wall, host and, in repeats of their own, the device span.

The order is: synchronise, read the clock, call, read the clock, synchronise, read the clock. Nothing else stands
between the first and the last reading. Events cost 8.5 µs each on the issuing thread, so a call with events is
another kind of sample (`with_events=True`): its span is good, its host and wall times are not comparable.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kdaprof.errors import UsageError
from kdaprof.instruments.clock import Clock
from kdaprof.instruments.device import Device


@dataclass(frozen=True, slots=True)
class CallTiming:
    """One call. `t_ns` monotonic start; `host_ns` until the call returned; `wall_ns` until the device was done.

    `gpu_span_ns` is the time between two device events around the call, idle included; None without events.
    """

    t_ns: int
    host_ns: int
    wall_ns: int
    gpu_span_ns: int | None


@dataclass(frozen=True, slots=True)
class BurstTiming:
    """`calls` calls back to back with one synchronise at the end; the times are of the whole burst."""

    t_ns: int
    calls: int
    host_ns: int
    wall_ns: int

    @property
    def pipelined_ns(self) -> float:
        """Wall time a call when the host may run ahead."""
        return self.wall_ns / self.calls


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Python's cyclic collector off inside, and as it was afterwards. Nests."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def time_call(fn: Callable[[], object], device: Device, clock: Clock, *, with_events: bool = False) -> CallTiming:
    """Time one call of `fn`. What `fn` returns is dropped after the last reading, so frees are not timed.

    Errors: whatever `fn` or the synchronise raises; garbage collection is put back either way.
    """
    now = clock.now_ns
    synchronize = device.synchronize
    if with_events:
        return _time_with_events(fn, device, clock)
    with garbage_collection_off():
        synchronize()
        start = now()
        kept = fn()
        issued = now()
        synchronize()
        done = now()
    del kept
    return CallTiming(start, issued - start, done - start, None)


def _time_with_events(fn: Callable[[], object], device: Device, clock: Clock) -> CallTiming:
    timer = device.event_timer()
    now = clock.now_ns
    with garbage_collection_off():
        device.synchronize()
        start = now()
        timer.start()
        kept = fn()
        timer.stop()
        issued = now()
        device.synchronize()
        done = now()
    del kept
    return CallTiming(start, issued - start, done - start, timer.elapsed_ns())


def time_burst(fn: Callable[[], object], calls: int, device: Device, clock: Clock) -> BurstTiming:
    """Time `calls` calls of `fn` issued back to back, one synchronise before and one after.

    Each result is dropped when the next call returns, so that memory is that of two calls, not of `calls`.
    Errors: UsageError when `calls` is not positive.
    """
    if calls < 1:
        raise UsageError(f"a burst needs at least one call, not {calls}")
    now = clock.now_ns
    kept: object = None
    with garbage_collection_off():
        device.synchronize()
        start = now()
        for _ in range(calls):
            kept = fn()
        issued = now()
        device.synchronize()
        done = now()
    del kept
    return BurstTiming(start, calls, issued - start, done - start)
