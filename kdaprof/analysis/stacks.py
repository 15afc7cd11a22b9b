"""Host time by layer and by phase: stacks, the kernel's counters and intervals on one clock.

The kernel's counters say how much of a stretch the thread ran, waited for a core, or waited for something else. Native
stacks stop the process: a stop is py-spy's time and not the thread's, so that all is read on a clock without the stops.
Without counters the innermost functions of a native stack say what waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.stacks_holds import NO_STOPS, StopClock
from kdaprof.analysis.stacks_layers import LAYERS, Layer, layer_of
from kdaprof.analysis.stacks_trace import Frame, ThreadStacks
from kdaprof.analysis.util_join import Interval, inside
from kdaprof.runs.stacks import ThreadTicks
from kdaprof.runs.util_file import FloatArray, IntArray

_NUMBER = {layer: number for number, layer in enumerate(LAYERS)}
_HOTTEST = 10

BLURRED = 0.5
"""Share of what a phase's figures are read from that may lie outside it; from here on they are its surroundings'."""


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """A thread's time by layer (ns) inside all intervals of one name, which lasted `span_ns` together.

    `blurred`: its calls are too short, and what is around them is another phase's, for shares of its own.
    """

    name: str
    calls: int
    span_ns: int
    layers: dict[Layer, float]
    blurred: bool


@dataclass(frozen=True, slots=True)
class HotLine:
    """An innermost line of Python and the thread's time (ns) there."""

    frame: Frame
    ns: float


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """One thread: observed for `observed_ns`, stops left out, by layer, by phase, and where most of it was.

    `counted`: the kernel's counters told running from waiting. `blur_ns`: to within what a phase's border is known.
    """

    tid: int | None
    name: str
    observed_ns: int
    counted: bool
    blur_ns: int
    layers: dict[Layer, float]
    phases: tuple[PhaseTime, ...]
    hottest: tuple[HotLine, ...]


def thread_time(
    stacks: ThreadStacks,
    ticks: ThreadTicks | None,
    *,
    stops: StopClock = NO_STOPS,
    intervals: Iterable[Interval] = (),
    apart_ns: int = 0,
) -> ThreadTime:
    """Sum one thread's stacks. `ticks` None: running and waiting cannot be told apart in Python stacks.

    `stops`: those that native stacks made. `apart_ns`: to within what stacks and intervals are on one clock.
    """
    named: dict[str, list[tuple[int, int]]] = {}
    for start, end, name in sorted(intervals):
        named.setdefault(name, []).append((start, end))
    pieces = _Pieces(stacks, ticks, stops, [span for spans in named.values() for span in spans])
    everywhere = np.ones(len(pieces.start_ns), bool)
    blur_ns = apart_ns + _spacing_ns(ticks)
    phases = tuple(
        PhaseTime(
            name=name,
            calls=len(spans),
            span_ns=_covered(spans),
            layers=pieces.by_layer(inside(pieces.start_ns, spans)),
            blurred=_blurred(spans, blur_ns),
        )
        for name, spans in named.items()
    )
    return ThreadTime(
        tid=stacks.tid,
        name=stacks.name,
        observed_ns=round(float(pieces.length_ns.sum())),
        counted=pieces.counted,
        blur_ns=blur_ns,
        layers=pieces.by_layer(everywhere),
        phases=phases,
        hottest=_hottest(stacks, pieces),
    )


class _Pieces:
    """A thread's time cut at every border, so that a piece lies in one stretch and in no interval or wholly in it."""

    def __init__(
        self,
        stacks: ThreadStacks,
        ticks: ThreadTicks | None,
        stops: StopClock,
        spans: Sequence[tuple[int, int]],
    ) -> None:
        self.counted = ticks is not None
        starts = np.array([s.start_ns for s in stacks.stretches], np.int64)
        ends = np.array([s.end_ns for s in stacks.stretches], np.int64)
        borders = np.unique(np.concatenate([starts, ends, np.array(spans, np.int64).reshape(-1)]))
        if ticks is not None and len(borders):
            # What lies outside the counters' ticks was not counted; the thread may have ended before the trace did.
            low, high = int(ticks.t_ns[0]), int(ticks.t_ns[-1])
            borders = np.unique(np.clip(borders, low, high))
        begin, end = borders[:-1], borders[1:]
        of = np.searchsorted(starts, begin, side="right") - 1
        held = (of >= 0) & (begin < ends[np.maximum(of, 0)]) if len(starts) else np.zeros(len(begin), bool)
        self.start_ns: IntArray = begin[held]
        self.end_ns: IntArray = end[held]
        self.stretch: IntArray = of[held]
        layers = _layers(stacks)
        self.layer: IntArray = layers[self.stretch]
        self.at_work: IntArray = self.layer
        # On a clock that stands still while the process is stopped, as the counters do.
        begin_own, end_own = (t_ns - stops.until(t_ns) for t_ns in (self.start_ns, self.end_ns))
        self.length_ns: FloatArray = end_own - begin_own
        nothing = np.zeros(len(self.length_ns))
        self.ran, self.delayed, self.off = self.length_ns, nothing, nothing
        if ticks is not None:
            self.at_work = _awake_layers(layers)[self.stretch]
            at = ticks.t_ns - stops.until(ticks.t_ns)
            self.ran, self.delayed = (
                np.interp(end_own, at, counter) - np.interp(begin_own, at, counter)
                for counter in (ticks.run_ns, ticks.delay_ns)
            )
            # May be a little below 0 for a piece, where a stop's ends were seen late; the sums are right.
            self.off = self.length_ns - self.ran - self.delayed

    def by_layer(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> dict[Layer, float]:
        """Time (ns) of the chosen pieces by layer; what waited inside a synchronisation is synchronisation."""
        sync = self.layer == _NUMBER["sync"]
        sums = np.bincount(self.layer[chosen], weights=np.where(sync, self.off, 0.0)[chosen], minlength=len(LAYERS))
        sums += np.bincount(self.at_work[chosen], weights=self.ran[chosen], minlength=len(LAYERS))
        sums[_NUMBER["waiting"]] += self.off[chosen & ~sync].sum()
        sums[_NUMBER["no_core"]] += self.delayed[chosen].sum()
        return {layer: max(0.0, float(value)) for layer, value in zip(LAYERS, sums, strict=True)}


def _layers(stacks: ThreadStacks) -> IntArray:
    """The layer's number of every stretch; equal stacks are looked at once."""
    known = {frames: _NUMBER[layer_of(frames)] for frames in {s.frames for s in stacks.stretches}}
    return np.array([known[s.frames] for s in stacks.stretches], np.int64)


def _awake_layers(layers: IntArray) -> IntArray:
    """For each stretch the layer of what ran in it: where the stack still waits, that of the next one that does not."""
    awake = np.flatnonzero(layers != _NUMBER["waiting"])
    if not len(awake):
        return layers
    following = np.searchsorted(awake, np.arange(len(layers)))
    found: IntArray = layers[awake[np.minimum(following, len(awake) - 1)]]
    return found


def _spacing_ns(ticks: ThreadTicks | None) -> int:
    """Time between two readings of the counters, inside which they say only how much of it the thread ran."""
    return 0 if ticks is None or len(ticks.t_ns) < 2 else int(np.median(np.diff(ticks.t_ns)))


def _blurred(spans: Sequence[tuple[int, int]], blur_ns: int) -> bool:
    """Whether half of what lies within the blur of a border is outside; calls back to back have no border between."""
    reached = _covered([(start - blur_ns // 2, end + blur_ns // 2) for start, end in spans])
    return reached - _covered(spans) > BLURRED * reached


def _covered(spans: Sequence[tuple[int, int]]) -> int:
    """Time in at least one of the spans, which are in order of their start."""
    total, reach = 0, spans[0][0]
    for start, end in spans:
        total += max(0, end - max(start, reach))
        reach = max(reach, end)
    return total


def _hottest(stacks: ThreadStacks, pieces: _Pieces) -> tuple[HotLine, ...]:
    """The innermost Python lines with most time, waiting included."""
    lines: dict[Frame, float] = {}
    spent = np.bincount(pieces.stretch, weights=pieces.length_ns, minlength=len(stacks.stretches))
    for stretch, ns in zip(stacks.stretches, spent.tolist(), strict=True):
        frame = next((f for f in reversed(stretch.frames) if f.file.endswith(".py") or f.file.startswith("<")), None)
        if frame is not None and ns:
            lines[frame] = lines.get(frame, 0.0) + ns
    best = sorted(lines.items(), key=lambda item: (-item[1], item[0].file, item[0].line))
    return tuple(HotLine(frame, ns) for frame, ns in best[:_HOTTEST])
