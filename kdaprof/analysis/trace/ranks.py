"""Traces of many ranks: none missing, none twice; who is late, and who waits in collectives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kdaprof.analysis.trace.context import Context
from kdaprof.analysis.trace.paths import family
from kdaprof.errors import BadFileError
from kdaprof.timeline.columns import Kind

_RANK_IN_NAME = re.compile(r"(?i)rank[_.\-]?(\d+)")

_HOST_COLLECTIVE = re.compile(r"(gloo|mpi):")

STRAGGLER_WAIT = 0.05
"""A rank for which the others wait this share of their device span is a straggler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """The kernels of one collective on one rank, in order: their durations."""

    name: str
    durations_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInput:
    """What the comparison needs of one rank."""

    rank: int
    path: str
    span_ns: int
    busy_ns: int
    idle_ns: int
    collectives: tuple[Collective, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """One rank. `collective_wait_ns`: its collective kernels' duration beyond the shortest rank's, kernel by kernel.

    The rank that comes last waits least: `straggler` marks it when the others wait long enough for it.
    `matched`: collective kernels that could be compared with every other rank.
    """

    rank: int
    path: str
    span_ns: int
    busy_ns: int
    idle_ns: int
    collective_ns: int
    collective_wait_ns: int | None
    matched: int
    straggler: bool


def collectives_of(context: Context) -> tuple[Collective, ...]:
    """Durations of collectives by name, in order of start: kernels on devices, else ranges of a host's backend."""
    timeline = context.timeline
    on_device = np.array([family(name, Kind.KERNEL) == "nccl" for name in timeline.names] or [False], np.bool_)
    on_host = np.array([_HOST_COLLECTIVE.match(name) is not None for name in timeline.names] or [False], np.bool_)
    if not len(timeline) or not (on_device | on_host).any():
        return ()
    rows = np.flatnonzero((timeline.kind == Kind.KERNEL) & on_device[timeline.name])
    if not rows.size:
        rows = np.flatnonzero(timeline.of_kind(Kind.ANNOTATION, Kind.CPU_OP) & on_host[timeline.name])
    rows = rows[np.argsort(timeline.start_ns[rows], kind="stable")]
    found = []
    for name in dict.fromkeys(timeline.name[rows].tolist()):
        mine = rows[timeline.name[rows] == name]
        lengths = (timeline.end_ns[mine] - timeline.start_ns[mine]).tolist()
        found.append(Collective(name=timeline.names[name], durations_ns=tuple(lengths)))
    return tuple(found)


def rank_of(path: str, recorded: int | None) -> int | None:
    """The rank recorded in a trace, else the one in its file's name (`…rank3.json`), else None."""
    if recorded is not None:
        return recorded
    match = _RANK_IN_NAME.search(Path(path).name)
    return int(match.group(1)) if match else None


def check_ranks(ranks: Sequence[tuple[str, int | None]], world_size: int | None) -> None:
    """Raise `BadFileError` naming doubled, missing and unknown ranks of a folder. No rank at all is no fault."""
    known = [(path, rank) for path, rank in ranks if rank is not None]
    if not known:
        return
    faults = []
    unknown = [Path(path).name for path, rank in ranks if rank is None]
    if unknown:
        faults.append(f"no rank in {', '.join(unknown[:5])}")
    by_rank: dict[int, list[str]] = {}
    for path, rank in known:
        by_rank.setdefault(rank, []).append(Path(path).name)
    faults += [f"rank {rank} twice: {', '.join(paths)}" for rank, paths in sorted(by_rank.items()) if len(paths) > 1]
    size = max(world_size or 0, max(by_rank) + 1)
    missing = [str(rank) for rank in range(size) if rank not in by_rank]
    if missing:
        shown = ", ".join(missing[:10]) + (", …" if len(missing) > 10 else "")
        faults.append(f"rank{'s' if len(missing) > 1 else ''} {shown} missing of {size}")
    if faults:
        raise BadFileError(f"{Path(ranks[0][0]).parent}: {'; '.join(faults)}")


def rank_table(inputs: Sequence[RankInput]) -> tuple[RankRow, ...]:
    """Compare ranks; collectives are matched by name and order, as far as all ranks have them."""
    ordered = sorted(inputs, key=lambda one: one.rank)
    waits, matched = _waits(ordered)
    straggler = _straggler(ordered, waits) if matched and len(ordered) > 1 else None
    return tuple(
        RankRow(
            rank=one.rank,
            path=one.path,
            span_ns=one.span_ns,
            busy_ns=one.busy_ns,
            idle_ns=one.idle_ns,
            collective_ns=sum(sum(collective.durations_ns) for collective in one.collectives),
            collective_wait_ns=waits[place] if matched else None,
            matched=matched,
            straggler=place == straggler,
        )
        for place, one in enumerate(ordered)
    )


def _waits(ordered: Sequence[RankInput]) -> tuple[list[int], int]:
    """For each rank the time in collectives beyond the shortest rank's, and how many kernels were compared."""
    tables = [{collective.name: collective.durations_ns for collective in one.collectives} for one in ordered]
    shared = set.intersection(*(set(table) for table in tables)) if tables else set()
    waits = [0] * len(tables)
    matched = 0
    for name in sorted(shared):
        count = min(len(table[name]) for table in tables)
        lengths = np.array([table[name][:count] for table in tables], dtype=np.int64)
        beyond = (lengths - lengths.min(axis=0)).sum(axis=1).tolist()
        waits = [wait + more for wait, more in zip(waits, beyond, strict=True)]
        matched += count
    return waits, matched


def _straggler(ordered: Sequence[RankInput], waits: Sequence[int]) -> int | None:
    """The rank that waits least, if the others wait long for it."""
    least = min(range(len(waits)), key=waits.__getitem__)
    others = [waits[place] - waits[least] for place in range(len(waits)) if place != least]
    spans = [one.span_ns for place, one in enumerate(ordered) if place != least]
    late = sum(others) / max(sum(spans), 1)
    return least if late >= STRAGGLER_WAIT else None
