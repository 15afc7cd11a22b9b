"""Q02 and Q16: a median that its own samples do not support, and a span that the clock cannot tell."""

from __future__ import annotations

from kdaprof.analysis.guards.rule import GuardRule
from kdaprof.analysis.stats import Interval, half_width
from kdaprof.analysis.view import CellView
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_fraction, format_ns

HALF_WIDTH_HOST_MAX = 0.10
HALF_WIDTH_BUSY_MAX = 0.03
RESOLUTIONS_MIN = 20
# cudaEventElapsedTime resolves about half a microsecond (CUDA Runtime API, event management).
EVENT_RESOLUTION_NS = 500
# Kernel times that CUPTI records come in steps of 32 ns (H200: every duration of a graph's kernels is a multiple).
DEVICE_RESOLUTION_NS = 32

# Taken outside the rounds, so that there is no interval over rounds: judged by the spread of their samples.
_WITHOUT_ROUNDS = frozenset({"gpu_span_ns", "input_copy_ns"})
_SPREAD = frozenset({"wall_ns", "host_ns", "pipelined_ns", "gpu_busy_ns"}) | _WITHOUT_ROUNDS


def _too_wide(view: CellView, name: str, fact: Fact) -> str | None:
    return too_wide(name, fact)


def too_wide(name: str, fact: Fact) -> str | None:
    """Why the samples of a figure do not support its median, by the thresholds of Q02; None when they do."""
    assert fact.value is not None
    limit = HALF_WIDTH_BUSY_MAX if name == "gpu_busy_ns" else HALF_WIDTH_HOST_MAX
    interval, words = fact.ci95, "95 % interval"
    if interval is None and name in _WITHOUT_ROUNDS:
        interval, words = _spread(fact), "p10…p90 of the samples"
    if interval is None:
        why = (fact.detail or "too few rounds").removeprefix("no interval: ")
        return f"no interval: {fact.n} {'sample' if fact.n == 1 else 'samples'}, {why}"
    half = half_width(float(fact.value), interval)
    if half <= limit:
        return None
    lies = f"{format_ns(interval[0])}…{format_ns(interval[1])}"
    return f"{words} {lies} is ± {format_fraction(half)} of the median, limit {format_fraction(limit)}"


def _spread(fact: Fact) -> Interval | None:
    if fact.p10 is None or fact.p90 is None or fact.n < 2:
        return None
    return (fact.p10, fact.p90)


def _below_resolution(view: CellView, name: str, fact: Fact) -> str | None:
    assert fact.value is not None
    resolution, clock = _resolution_ns(view, name)
    # A burst is one span of the clock over many calls; the figure is a call's part of it.
    calls = min((s.calls for s in view.of("pipelined")), default=1) if name == "pipelined_ns" else 1
    span = fact.value * calls
    if span >= RESOLUTIONS_MIN * resolution:
        return None
    return f"{format_ns(span)} is under {RESOLUTIONS_MIN} × the {resolution} ns that the {clock} resolves"


def _resolution_ns(view: CellView, name: str) -> tuple[int, str]:
    if name == "gpu_busy_ns":
        return DEVICE_RESOLUTION_NS, "device's clock"
    if name == "gpu_span_ns":
        return EVENT_RESOLUTION_NS, "event timer"
    seen = view.cell.observed
    return (seen.clock_resolution_ns if seen else 1), "host clock"


SPREAD = GuardRule(
    id="Q02",
    title="spread",
    explanation=(
        "A median whose 95 % interval is too wide to say anything. One fixed matmul took 4.8 to 71 ms and its median "
        "was quoted: 4.4 times behind, or 2.3 times ahead at the fastest sample."
    ),
    touches=_SPREAD,
    judge=_too_wide,
    thresholds={"half_width_host_max": HALF_WIDTH_HOST_MAX, "half_width_busy_max": HALF_WIDTH_BUSY_MAX},
)
BELOW_RESOLUTION = GuardRule(
    id="Q16",
    title="below resolution",
    explanation="A span shorter than the clock that took it can tell apart from nothing.",
    touches=_SPREAD | {"cold_ns"},
    judge=_below_resolution,
    thresholds={
        "resolutions_min": RESOLUTIONS_MIN,
        "event_resolution_ns": EVENT_RESOLUTION_NS,
        "device_resolution_ns": DEVICE_RESOLUTION_NS,
    },
)
