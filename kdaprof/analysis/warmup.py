"""Where a series of walls becomes steady: change points (PELT) on the log scale, from step 0 on.

The steady segment begins behind the last cold segment. What lies behind it must keep its level; a series that does
not is called one without a steady state, with the criterion that it missed. Nothing here loops until it likes what
it sees: the series is cut once, and judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kdaprof.analysis.stats import median
from kdaprof.analysis.view import WarmUp

MOVED = 1.35
"""A leading segment this far above the steady level is cold: hosts drift by ±30 %, so that less is no evidence."""
DRIFT = 1.3 / 0.7
"""A later segment this far off the level means that the level moved. The level may have been taken at one end of a
host's drift of ±30 % and the segment at the other; what the drift does to a median is told by its interval (Q02)."""
SPIKE = 3.0
"""A single sample of the steady segment this far above its level is counted as a spike."""
MIN_STEADY = 5
"""A steady segment shorter than this proves nothing."""
BRIEF = 3
"""A segment of at most this many samples (or of `BRIEF_SHARE` of the steady ones) is an excursion, not a level."""
BRIEF_SHARE = 0.05
MAX_EXCURSIONS = 0.10
"""With more of its samples in excursions than this, a series is still tuning."""

_PENALTY = 3.0  # times ln n, in units of the noise's variance: BIC asks for 2 a change of mean
_NOISE_FLOOR = math.log(1.01)  # structure below 1 % is not looked for, so constant series divide by something
_MAX_POINTS = 4096


@dataclass(frozen=True, slots=True)
class _Segment:
    start: int
    stop: int
    level: float

    @property
    def length(self) -> int:
        return self.stop - self.start


def find_warmup(walls: Sequence[tuple[int, int]]) -> WarmUp:
    """The warm-up of a series of (sample index, wall_ns) in order of execution, from step 0."""
    n = len(walls)
    if n < MIN_STEADY:
        text = f"{n} sample{'' if n == 1 else 's'}: a steady segment needs {MIN_STEADY}"
        return WarmUp(steady_from=None, change_points=(), n=n, detail=text)
    logs = np.log(np.maximum(np.array([wall for _, wall in walls], dtype=np.float64), 1.0))
    segments = _segments(logs)
    level = median(logs[n // 2 :].tolist())
    start, missed = _steady_start(segments, level, n)
    for _ in range(_block(n) - 1):  # a border between blocks may lie inside one
        start += start > 0 and start < n - 1 and bool(logs[start] > level + math.log(MOVED))
    index = [number for number, _ in walls]
    spikes = () if missed else tuple(index[i] for i in range(start, n) if logs[i] > level + math.log(SPIKE))
    if len(spikes) > MAX_EXCURSIONS * (n - start):
        missed = (
            f"{len(spikes)} of {n - start} samples stand above {SPIKE:g} times the level, limit {MAX_EXCURSIONS:.0%}"
        )
        spikes = ()
    return WarmUp(
        steady_from=None if missed else index[start],
        change_points=tuple(index[segment.start] for segment in segments[1:]),
        n=n,
        detail=missed or _describe(index[start], n, float(logs[0]) - level, len(spikes)),
        spikes=spikes,
        level_ns=round(math.exp(level)),
    )


def _segments(logs: NDArray[np.float64]) -> list[_Segment]:
    block = _block(logs.size)
    points = logs if block == 1 else np.array([np.median(logs[i : i + block]) for i in range(0, logs.size, block)])
    borders = [0, *(min(end * block, logs.size) for end in change_points(points))]
    return [_Segment(begin, end, median(logs[begin:end].tolist())) for begin, end in pairwise(borders) if end > begin]


def _block(n: int) -> int:
    return math.ceil(n / _MAX_POINTS)


def change_points(points: NDArray[np.float64]) -> list[int]:
    """Ends of the segments, the last one included: PELT with squared error, in ruptures' C implementation."""
    from ruptures import KernelCPD  # noqa: PLC0415 - a second of import that only a derivation needs

    # First differences see each change of level once, so that their median deviation is the noise alone.
    steps = np.diff(points)
    noise = max(float(np.median(np.abs(steps - np.median(steps)))) * 1.4826 / math.sqrt(2), _NOISE_FLOOR)
    scaled = ((points - np.median(points)) / noise).reshape(-1, 1)
    found = KernelCPD(kernel="linear", min_size=1, jump=1).fit(scaled).predict(pen=_PENALTY * math.log(points.size))
    return [int(end) for end in found]


def _steady_start(segments: Sequence[_Segment], level: float, n: int) -> tuple[int, str | None]:
    """Position of the first steady sample, and the criterion missed, if one is."""
    moved, drift = math.log(MOVED), math.log(DRIFT)
    brief = max(BRIEF, int(BRIEF_SHARE * n))
    first = 0
    for number, segment in enumerate(segments):
        leading = number == first  # nothing but cold segments before it
        if segment.level > level + moved and (leading or segment.length > brief):
            first = number + 1
    steady = segments[first:]
    start = steady[0].start if steady else n
    length = n - start
    if length < MIN_STEADY:
        return start, f"only {length} of {n} samples follow the last cold one; a steady segment needs {MIN_STEADY}"
    for segment in steady:
        if abs(segment.level - level) > drift and segment.length > brief:
            factor = math.exp(segment.level - level)
            text = f"the level moved: {segment.length} samples at {factor:.2f} of the level of the last half"
            return start, f"{text} (limit {1 / DRIFT:.2f} to {DRIFT:.2f})"
    stray = sum(segment.length for segment in steady if abs(segment.level - level) > drift)
    if stray > MAX_EXCURSIONS * length:
        return start, f"{stray} of {length} samples stand off the level, limit {MAX_EXCURSIONS:.0%}: still tuning"
    return start, None


def _describe(first: int, n: int, cold: float, spikes: int) -> str:
    text = f"steady from sample {first} of {n}"
    if first:
        text += f"; the first took {math.exp(cold):.1f} times the steady level"
    return text + (f"; {spikes} spikes above {SPIKE:g} times it" if spikes else "")
