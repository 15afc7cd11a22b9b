"""What the derivation sees of a run: raw parts gathered by cell, before any rule has spoken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kdaprof.runs.facts import Fact
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.results import Evidence
from kdaprof.runs.samples import Sample
from kdaprof.runs.util import UtilReading
from kdaprof.timeline.columns import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRun:
    """Everything that was stored: the one input of `derive`."""

    record: RunRecord
    samples: Mapping[str, tuple[Sample, ...]]
    timelines: Mapping[tuple[str, str], Timeline]
    """By (cell id, `profiled-cuda` | `profiled-full`)."""
    util: tuple[UtilReading, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """Where the steady segment of the unprofiled series begins, all positions as sample indices.

    `steady_from` is None when there is no steady state; `detail` then names the criterion that was not met.
    `spikes` are samples of the steady segment that stand far above it (re-tuning, a collection, a preempted host).
    """

    steady_from: int | None
    change_points: tuple[int, ...]
    n: int
    detail: str = ""
    spikes: tuple[int, ...] = ()
    level_ns: int | None = None
    """Median wall of the last half of the series: the level that everything else is judged against."""


def steady_of(samples: Iterable[Sample], warmup: WarmUp) -> tuple[Sample, ...]:
    """Unprofiled samples of the rounds, from the steady segment on; of the whole series without rounds there.

    Without a steady segment they are all of them (rule Q01 then refuses).
    """
    start = warmup.steady_from
    steady = [s for s in samples if s.repeat == "unprofiled" and (start is None or s.index >= start)]
    return tuple(s for s in steady if s.round >= 0) or tuple(steady)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One kernel of a cell: calls and device time of one execution (medians over the profiled repeats)."""

    name: str
    calls: int
    busy_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """One cell with what was derived of it so far; what the witnesses and the rules look at."""

    run: RunRecord
    cell: CellRecord
    samples: tuple[Sample, ...]
    warmup: WarmUp
    kernels: tuple[KernelRow, ...]
    facts: Mapping[str, Fact]
    evidence: Evidence
    backward_kernels_seen: bool | None = None
    extra: Mapping[str, float] = field(default_factory=dict)

    def of(self, repeat: str) -> tuple[Sample, ...]:
        """The samples of one kind of repeat."""
        return tuple(sample for sample in self.samples if sample.repeat == repeat)

    def steady(self) -> tuple[Sample, ...]:
        """What the cell's times are taken from: see `steady_of`."""
        return steady_of(self.samples, self.warmup)
