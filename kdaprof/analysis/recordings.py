"""Profiled repeats of a cell: the split of each, and the kernels of one execution over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kdaprof.analysis.stats import median
from kdaprof.analysis.trace.launches import KernelRow as Row
from kdaprof.analysis.trace.launches import kernel_table
from kdaprof.analysis.trace.links import link
from kdaprof.analysis.trace.loop import loop_splits, loop_tables
from kdaprof.analysis.trace.repeats import DeviceSplit, RepeatSplit, repeat_splits
from kdaprof.analysis.view import KernelRow
from kdaprof.timeline.columns import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One recording of a cell: its repeats, split, and the device events by name that each launched."""

    splits: tuple[RepeatSplit, ...]
    tables: tuple[tuple[Row, ...], ...]

    @property
    def seen(self) -> tuple[tuple[RepeatSplit, DeviceSplit], ...]:
        """The repeats in which a device event was recorded: only they say anything about the device."""
        return tuple((split, split.device) for split in self.splits if split.device is not None)


EMPTY = Recording(splits=(), tables=())


def read_recording(timeline: Timeline) -> Recording:
    """Split and tabulate every repeat. Work belongs to the repeat in which it was launched.

    Where several devices did work, the one named first by the timeline is taken; a probe runs on one.
    """
    devices = timeline.devices()
    splits = repeat_splits(timeline, device=devices[0] if devices else None)
    links = link(timeline)
    tables = tuple(kernel_table(timeline, (split.start_ns, split.end_ns), links=links) for split in splits)
    return Recording(splits=splits, tables=tables)


def read_loop(timeline: Timeline, phase: str) -> Recording:
    """Split and tabulate a phase of a running loop, entry by entry; `index` of a split is its step."""
    devices = timeline.devices()
    splits = loop_splits(timeline, phase, device=devices[0] if devices else None)
    return Recording(splits=splits, tables=loop_tables(timeline, phase))


def kernels_of(recording: Recording) -> tuple[KernelRow, ...]:
    """Kernels, copies and sets by name: calls and device time of one execution, medians over the repeats.

    A name seen in fewer than half of the repeats is not part of the call.
    """
    seen: dict[str, tuple[list[int], list[int]]] = {}
    count = len(recording.tables)
    for number, table in enumerate(recording.tables):
        for row in table:
            calls, busy = seen.setdefault(row.name, ([0] * count, [0] * count))
            calls[number] += row.calls
            busy[number] += row.busy_ns
    rows = (
        KernelRow(name=name, calls=round(median(calls)), busy_ns=round(median(busy)))
        for name, (calls, busy) in seen.items()
    )
    return tuple(sorted((row for row in rows if row.calls), key=lambda row: (-row.busy_ns, row.name)))


def launches_of(recording: Recording) -> Sequence[tuple[int, int]]:
    """(repeat, launch calls) of every repeat; () when none was recorded in any."""
    counts = summed((split.index, split.launch_total) for split in recording.splits)
    # A phase of a loop may launch nothing, and then the device does nothing in it. Otherwise 0 means: not recorded.
    idle = bool(recording.seen) and not any(device.busy.busy_ns for _, device in recording.seen)
    return counts if idle or any(count for _, count in counts) else ()


def summed(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Values of one index added: a step may enter a phase several times."""
    totals: dict[int, int] = {}
    for index, value in pairs:
        totals[index] = totals.get(index, 0) + value
    return list(totals.items())
