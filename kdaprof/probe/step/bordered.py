"""A step run part by part: synchronised at the borders of its phases, or watched at its KDA calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kdaprof.instruments.allocator import AllocatorCounters
from kdaprof.instruments.clock import Clock
from kdaprof.instruments.device import Device
from kdaprof.instruments.kineto import InnerRange
from kdaprof.instruments.timing import garbage_collection_off
from kdaprof.probe.bench import Bench
from kdaprof.probe.series import Series
from kdaprof.workloads.step.case import PhasedCase

PHASE_RANGE, STEP_RANGE = "phase ", "ProfilerStep#"
"""How the analysis of loops finds a phase and its step in a timeline."""


@dataclass(frozen=True, slots=True)
class Border:
    """One phase of one step: start, host until it was issued, wall until the device was done."""

    phase: str
    start_ns: int
    host_ns: int
    wall_ns: int


def run_bordered(case: PhasedCase, device: Device, clock: Clock) -> tuple[Border, ...]:
    """One step, synchronised after each phase. Neighbours share a border, so that walls add up to the step's."""
    now, synchronize = clock.now_ns, device.synchronize
    borders = []
    with garbage_collection_off():
        synchronize()
        start = now()
        for phase in case.phases:
            phase.run()
            issued = now()
            synchronize()
            done = now()
            borders.append(Border(phase.name, start, issued - start, done - start))
            start = done
    case.steps_done += 1
    return tuple(borders)


@dataclass(slots=True)
class CallTimes:
    """Host windows of the watched op's calls, by line; takes marks from any thread."""

    clock: Clock
    windows: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _open: dict[str, int] = field(default_factory=dict)

    def mark(self, line: str, begins: bool) -> None:
        """A call of `line` begins or has ended. An end without a begin is ignored: its call was not watched."""
        if begins:
            self._open[line] = self.clock.now_ns()
        elif line in self._open:
            self.windows.setdefault(line, []).append((self._open.pop(line), self.clock.now_ns()))

    def ranges(self) -> tuple[InnerRange, ...]:
        """Every window as a range of a trace."""
        return tuple(
            InnerRange(f"{PHASE_RANGE}{line}", *window) for line, many in self.windows.items() for window in many
        )


def bordered_sample(phases: Mapping[str, Series], case: PhasedCase, index: int, bench: Bench, number: int) -> None:
    """One unprofiled step that gives every phase a sample."""
    case.prepare(index)
    for border in run_bordered(case, bench.device, bench.clock):
        phases[border.phase].add("unprofiled", number, border.start_ns, host_ns=border.host_ns, wall_ns=border.wall_ns)


def watched_sample(lines: Mapping[str, Series], case: PhasedCase, index: int, bench: Bench, number: int) -> None:
    """One unprofiled step that gives the op's lines a sample: host time of all calls of the step together."""
    case.prepare(index)
    times = CallTimes(bench.clock)
    case.watch.mark = times.mark
    try:
        with garbage_collection_off():
            bench.device.synchronize()
            case.run()
            bench.device.synchronize()
    finally:
        case.watch.mark = None
    for line, windows in times.windows.items():
        if line in lines:
            spent = sum(end - begin for begin, end in windows)
            lines[line].add("unprofiled", number, windows[0][0], host_ns=spent)


def allocation_samples(
    series: Series, phases: Mapping[str, Series], lines: Mapping[str, Series], case: PhasedCase, bench: Bench
) -> None:
    """Allocations of one step, of each phase and of the op's calls, counters read at their borders."""
    counter = _Allocations(bench)
    case.prepare(series.next_input())
    bench.device.synchronize()
    case.watch.mark = counter.mark
    counter.begin("step")
    try:
        for phase in case.phases:
            counter.begin(phase.name)
            phase.run()
            counter.end(phase.name)
    finally:
        case.watch.mark = None
    case.steps_done += 1
    counter.end("step")
    bench.device.synchronize()
    for name, one in {"step": series, **phases, **lines}.items():
        counter.store(name, one)


class _Allocations:
    """Counter differences by name, summed over what is entered several times."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._open: dict[str, AllocatorCounters] = {}
        self._sum: dict[str, tuple[int, int, int, int, int]] = {}
        self._peaks: dict[str, int] = {}

    def begin(self, name: str) -> None:
        counters = self._bench.allocator.read()
        if counters is not None:
            self._note_peak(counters)
            self._bench.allocator.reset_peak()
            self._open[name] = counters
            self._peaks[name] = counters.current_bytes

    def end(self, name: str) -> None:
        after, before = self._bench.allocator.read(), self._open.get(name)
        if after is None or before is None:
            return
        self._note_peak(after)
        del self._open[name]
        t, allocs, size, peak, _ = self._sum.get(name, (self._bench.clock.now_ns(), 0, 0, 0, 0))
        self._sum[name] = (
            t,
            allocs + after.allocs - before.allocs,
            size + after.alloc_bytes - before.alloc_bytes,
            max(peak, self._peaks.pop(name) - before.current_bytes),
            after.reserved_bytes,
        )

    def mark(self, line: str, begins: bool) -> None:
        """A watched call begins or ends."""
        (self.begin if begins else self.end)(line)

    def _note_peak(self, counters: AllocatorCounters) -> None:
        """A reset ends the view of all that are open: each keeps the highest it has seen so far."""
        for name in self._open:
            self._peaks[name] = max(self._peaks[name], counters.peak_bytes)

    def store(self, name: str, series: Series) -> None:
        """One `alloc` sample."""
        if name in self._sum:
            t, allocs, size, peak, reserved = self._sum[name]
            series.add("alloc", 0, t, allocs=allocs, alloc_bytes=size, peak_bytes=peak, reserved_bytes=reserved)
