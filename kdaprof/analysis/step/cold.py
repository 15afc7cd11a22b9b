"""What a step costs before it is warm, by cause, and whether it stays warm: re-tuning and drift in the steady part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdaprof.analysis.stats import median
from kdaprof.runs.compiles import Cause, CompileEvent, SlowStep

INNERMOST: tuple[Cause, ...] = ("triton", "triton-cached", "autotune", "torch.compile", "library")
"""Time that several causes share is the first one's: a tuning compiles, and torch.compile does both."""
DRIFT_MIN = 0.10
"""A trend of less than this share of the step over the whole steady part is no drift."""
DRIFT_SAMPLES_MIN = 20
_MOST_POINTS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CausePart:
    """One cause of a step: events, configurations tried or kernels compiled, ns that are its alone, ns of the work
    (summed over threads, more than `ns` where they work side by side), and the longest event's name.
    """

    cause: Cause
    events: int
    count: int
    ns: int
    work_ns: int
    longest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdCost:
    """A cold step cut by cause: the parts and `rest_ns` add up to `wall_ns`."""

    wall_ns: int
    parts: tuple[CausePart, ...]
    rest_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Trend of the steady walls (Theil–Sen) over the whole steady part, as a share of their median, with 95 %."""

    share: float
    low: float
    high: float
    n: int

    @property
    def drifts(self) -> bool:
        """Whether it is large enough and its interval excludes none."""
        return abs(self.share) >= DRIFT_MIN and (self.low > 0 or self.high < 0)


def cold_cost(step: SlowStep) -> ColdCost:
    """The step by cause. What lies outside the step is cut off; overlaps belong to the innermost cause."""
    end = step.start_ns + step.wall_ns
    taken: list[tuple[int, int]] = []
    parts = []
    for cause in INNERMOST:
        mine = [event for event in step.events if event.cause == cause]
        if not mine:
            continue
        before = _length(taken)
        spans = [(max(e.start_ns, step.start_ns), min(e.start_ns + e.ns, end)) for e in mine]
        taken = _union([*taken, *spans])
        parts.append(
            CausePart(
                cause=cause,
                events=len(mine),
                count=sum(event.count for event in mine),
                ns=_length(taken) - before,
                work_ns=sum(event.ns for event in mine),
                longest=max(mine, key=lambda event: event.ns).name,
            )
        )
    return ColdCost(wall_ns=step.wall_ns, parts=tuple(parts), rest_ns=step.wall_ns - _length(taken))


def _union(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(span for span in spans if span[1] > span[0]):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _length(spans: Sequence[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in spans)


def retuned(steps: Sequence[SlowStep], steady_from: int | None) -> tuple[tuple[int, CompileEvent], ...]:
    """Events of the steady part, each with its step's index: none where there is no steady part."""
    if steady_from is None:
        return ()
    return tuple((s.index, event) for s in steps if not s.fresh and s.index >= steady_from for event in s.events)


def drift_of(walls: Sequence[int]) -> Drift | None:
    """The trend of a steady series in order; None when it is too short to have one, or has no time to share."""
    if len(walls) < DRIFT_SAMPLES_MIN:
        return None
    from scipy.stats import theilslopes  # noqa: PLC0415  half a second of import that only a derivation needs

    stride = -(-len(walls) // _MOST_POINTS)
    points = [median(walls[i : i + stride]) for i in range(0, len(walls), stride)]
    level = median(points)
    if level <= 0:
        return None
    made = theilslopes(points)
    scale = (len(points) - 1) / level
    slope, low, high = (float(value) * scale for value in (made.slope, made.low_slope, made.high_slope))
    return Drift(share=slope, low=low, high=high, n=len(walls))
