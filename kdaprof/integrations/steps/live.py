"""The line that a running loop shows: the time since the last one, by phase, and what bounds it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kdaprof.instruments.steps.recorder import UNPROFILED
from kdaprof.instruments.steps.spans import StepSpans
from kdaprof.kda.ledger import Counters, PathCount
from kdaprof.runs.units import format_fraction, format_ns, format_number
from kdaprof.timeline.loop_ranges import OTHER

_MANY_TOKENS = 10_000


@dataclass(slots=True)
class LiveMeter:
    """Sums over the steps since the last line. Profiled steps count as progress, their times do not."""

    begun_ns: int
    before: Counters
    traced: Collection[str] = ()
    """Paths traced into compiled regions since the loop began: their runs move no counter."""
    steps: int = 0
    last: int | None = None
    timed: int = 0
    wall_ns: int = 0
    tokens: int | None = None
    phases: dict[str, int] = field(default_factory=dict)

    def add(self, spans: StepSpans) -> None:
        """Count a finished step."""
        self.steps += 1
        self.last = spans.number
        if spans.tokens is not None:
            self.tokens = (self.tokens or 0) + spans.tokens
        if spans.kind != UNPROFILED:
            return
        self.timed += 1
        self.wall_ns += spans.wall_ns
        for phase in spans.phases:
            if not phase.nested:
                self.phases[phase.name] = self.phases.get(phase.name, 0) + phase.wall_ns
        self.phases[OTHER] = self.phases.get(OTHER, 0) + spans.other_ns

    def line(self, now_ns: int, counters: Counters, host_bound: tuple[float, int] | None) -> str:
        """`step 120 · 212 ms (fwd 71.0 ms, bwd 120 ms, …) · host-bound 41 % (step 31) · 19.3k tokens/s · kda fused=4/4`

        `host_bound` is the idle share of the last profiled window and its last step. Times are means a step.
        """
        if self.last is None:
            return "no step yet"
        parts = [f"step {self.last}"]
        if self.timed:
            shown = ", ".join(f"{name} {format_ns(ns / self.timed)}" for name, ns in self.phases.items())
            parts.append(f"{format_ns(self.wall_ns / self.timed)} ({shown})")
        if host_bound is not None:
            parts.append(f"host-bound {format_fraction(host_bound[0])} (step {host_bound[1]})")
        if self.tokens is not None and now_ns > self.begun_ns:
            parts.append(_rate(self.tokens * 1e9 / (now_ns - self.begun_ns)))
        gate = gate_text(self.before, counters, self.traced)
        return " · ".join((*parts, gate) if gate else parts)


def since(before: Counters, now: Counters) -> dict[str, PathCount]:
    """Calls of each path between two readings, also of one that was not called; counted as `_grown` says."""
    old = dict(before.paths)
    none = PathCount(0, 0)
    return {
        path: PathCount(_grown(old.get(path, none).fwd, count.fwd), _grown(old.get(path, none).bwd, count.bwd))
        for path, count in now.paths
    }


def traced_since(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """How often each path was traced between two readings, counted as `_grown` says; none that was not.

    Apart from `since`: a call has two directions, a tracing none, and what was not traced is nothing to speak of.
    """
    return {path: n for path, count in now.items() if (n := _grown(before.get(path, 0), count))}


def _grown(before: int, now: int) -> int:
    """By how much a counter grew; one that was reset in between counts from 0."""
    return now - before if now >= before else now


def gate_text(before: Counters, now: Counters, traced: Collection[str] = ()) -> str:
    """`kda fused=12/12` (forward/backward) of the paths that were taken, `fused=traced` of those inside compiled
    regions alone; empty when neither is known of.
    """
    taken = {path: str(count) for path, count in since(before, now).items() if count.fwd or count.bwd}
    taken = dict.fromkeys(traced, "traced") | taken
    return " ".join(("kda", *(f"{path}={count}" for path, count in taken.items()))) if taken else ""


def _rate(tokens_per_s: float) -> str:
    if tokens_per_s >= _MANY_TOKENS:
        return f"{format_number(tokens_per_s / 1000)}k tokens/s"
    return f"{format_number(tokens_per_s)} tokens/s"
