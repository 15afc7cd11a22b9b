"""Samples of the GPU joined with what ran: the readings inside each step, phase or sustained loop, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.util import Fields, utilisation_readings
from kdaprof.analysis.util_covered import covered, covered_inside
from kdaprof.analysis.util_readings import idle_share, mean_fact
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import Fact, absent
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import RunResults
from kdaprof.runs.samples import Sample
from kdaprof.runs.util_file import BoolArray, IntArray

Interval = tuple[int, int, str]
"""start_ns, end_ns (CLOCK_MONOTONIC) and name."""

WINDOW_NS = 1_000_000_000
"""NVML averages over up to 1 s: the readings of shorter intervals mix them with their neighbours."""

_JOINED = ("gpm_sm", "gpm_dram", "gpm_tensor")


@dataclass(frozen=True, slots=True)
class Joined:
    """What the card did inside all intervals of one name. `mixed`: they are shorter than what a reading averages."""

    name: str
    calls: int
    span_ns: int
    mixed: bool
    facts: dict[str, Fact]


@dataclass(frozen=True, slots=True)
class BusyShare:
    """GPU busy / wall of a cell of a run: the exact figure that sampled utilisation should resemble."""

    cell: str
    share: Fact


def join(fields: Fields, intervals: Iterable[Interval], *, began_ns: int | None = None) -> tuple[Joined, ...]:
    """The readings inside each name's intervals, in order of their first start; `began_ns` as in `card_use`."""
    named: dict[str, list[tuple[int, int]]] = {}
    for start, end, name in sorted(intervals):
        named.setdefault(name, []).append((start, end))
    return tuple(_joined(fields, name, spans, began_ns) for name, spans in named.items())


def inside(t_ns: IntArray, spans: list[tuple[int, int]]) -> BoolArray:
    """Which times lie in [start, end) of some span; spans are in order of their start, and may overlap."""
    starts = np.array([start for start, _ in spans], np.int64)
    # Up to which time the spans so far reach: an outer one that began earlier may hold a later time.
    reach = np.maximum.accumulate(np.array([end for _, end in spans], np.int64))
    last = np.searchsorted(starts, t_ns, side="right") - 1
    held: BoolArray = (last >= 0) & (t_ns < reach[np.maximum(last, 0)])
    return held


def intervals_of(record: RunRecord, samples: Mapping[str, Iterable[Sample]], *, offset_ns: int = 0) -> list[Interval]:
    """What a stored run did when: sustained loops where it has some, else every timed execution; by phase in a step.

    `offset_ns` is added to the run's times.
    """
    rows = [(record_cell.key, sample) for record_cell in record.cells for sample in samples.get(record_cell.id, ())]
    loops = any(sample.repeat == "util" for _, sample in rows)
    wanted = "util" if loops else "unprofiled"
    return [
        (sample.t_ns + offset_ns, sample.t_ns + sample.wall_ns + offset_ns, _name(key))
        for key, sample in rows
        if sample.repeat == wanted and sample.wall_ns is not None
    ]


def busy_shares(record: RunRecord, results: RunResults) -> tuple[BusyShare, ...]:
    """GPU busy / wall of each eager cell that has both."""
    found = []
    for cell in results.cells:
        busy, wall = cell.facts.get("gpu_busy_ns"), cell.facts.get("wall_ns")
        if "host_bound" in cell.facts and busy is not None and wall is not None and busy.value and wall.value:
            sources = (f"{record.run}/{cell.id}/gpu_busy_ns", f"{record.run}/{cell.id}/wall_ns")
            quotable = busy.quotable and wall.quotable
            share = Fact(
                value=busy.value / wall.value,
                unit="fraction",
                n=busy.n,
                provenance="derived",
                sources=sources,
                quotable=quotable,
                reasons=busy.reasons + wall.reasons,
            )
            found.append(BusyShare(cell.id, share))
    return tuple(found)


def _name(key: CellKey) -> str:
    return key.phase if key.workload == "step" else f"{key.path} {key.phase}"


def _settled(span: tuple[int, int]) -> tuple[int, int]:
    """Without the first second, whose readings average in what was before; a short span is taken whole."""
    start, end = span
    return (start + WINDOW_NS, end) if end - start >= 2 * WINDOW_NS else span


def _joined(fields: Fields, name: str, spans: list[tuple[int, int]], began_ns: int | None) -> Joined:
    every, source = utilisation_readings(fields)
    seen = every.only(inside(every.t_ns, [_settled(span) for span in spans]))
    none = absent("fraction", "not-applicable", "no reading lies in it")
    facts = {"util_mean": none, "util_idle_share": none}
    if seen.value.size:
        facts["util_mean"] = mean_fact(seen, "fraction", source)
        facts["util_idle_share"] = idle_share(seen)
    for field in _JOINED:
        if field in fields:
            facts[field] = covered_inside(covered(fields[field], began_ns), spans, "fraction")
    lengths = sorted(end - start for start, end in spans)
    return Joined(name, len(spans), sum(lengths), lengths[len(lengths) // 2] < WINDOW_NS, facts)
