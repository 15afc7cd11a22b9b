"""Host and device events as columns: the one form in which every source of a timeline is analysed.

One event is one row. Times are exact integer nanoseconds on the clock of the source. A value that an event
does not have is `MISSING` inside the numpy columns, and null in every file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from typing import Self

MISSING = -1
"""Inside a column: this event has no such value. Never written to a file, never shown."""

Int64: TypeAlias = NDArray[np.int64]
Int32: TypeAlias = NDArray[np.int32]
Int16: TypeAlias = NDArray[np.int16]
UInt8: TypeAlias = NDArray[np.uint8]
Bool: TypeAlias = NDArray[np.bool_]
Index: TypeAlias = NDArray[np.intp]


class Kind(IntEnum):
    """What an event is. Only `DEVICE_KINDS` are work of a device; annotations never are. TRACE is the recording."""

    KERNEL = 1
    MEMCPY = 2
    MEMSET = 3
    RUNTIME = 4
    DRIVER = 5
    CPU_OP = 6
    ANNOTATION = 7
    GPU_ANNOTATION = 8
    SYNC = 9
    OVERHEAD = 10
    PYTHON = 11
    TRACE = 12


DEVICE_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
COPY_KINDS = (Kind.MEMCPY, Kind.MEMSET)
CALL_KINDS = (Kind.RUNTIME, Kind.DRIVER)
HOST_KINDS = (Kind.RUNTIME, Kind.DRIVER, Kind.CPU_OP, Kind.ANNOTATION, Kind.PYTHON)


@dataclass(frozen=True, slots=True)
class Thread:
    """A host thread, by the process and thread ids of the source (numbers, or names where it has names)."""

    pid: int | str
    tid: int | str


@dataclass(frozen=True, slots=True)
class Device:
    """A device named by the source; `name` is None where the source does not say."""

    index: int
    name: str | None


@dataclass(frozen=True, slots=True)
class ReadCounts:
    """What became of the records of a source.

    `read` counts all records, `kept` the rows; `dropped` and `repaired` say why by name, with a count each.
    """

    read: int = 0
    kept: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    repaired: Mapping[str, int] = field(default_factory=dict)

    @property
    def dropped_total(self) -> int:
        """Records that could not be used and would have been rows."""
        return sum(self.dropped.values())

    @property
    def repaired_total(self) -> int:
        """Records that were usable only after a repair."""
        return sum(self.repaired.values())


@dataclass(frozen=True, slots=True)
class Source:
    """Where a timeline comes from.

    `base_ns`: Unix time in nanoseconds at which the timeline's clock is 0, None where the source does not say.
    `complete` is False when the source ends too early (truncated, damaged); `notes` say what was wrong.
    """

    format: str
    path: str | None = None
    base_ns: int | None = None
    rank: int | None = None
    world_size: int | None = None
    devices: tuple[Device, ...] = ()
    complete: bool = True
    counts: ReadCounts = field(default_factory=ReadCounts)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Events as columns of one length n, in the order of the source.

    kind [n] uint8 (`Kind`) · name [n] int32, index into `names` · start_ns, end_ns [n] int64 ·
    device [n] int16 · stream [n] int32 · thread [n] int32, index into `threads` (host events) ·
    correlation [n] int64, shared by a launch call and what it launched · graph_node [n] int64 ·
    step [n] int32, index of the step it was launched in · phase [n] int32, name id of the innermost
    annotation it was launched in · stack [n] int32, name id of the call stack recorded with the event.
    """

    kind: UInt8
    name: Int32
    start_ns: Int64
    end_ns: Int64
    device: Int16
    stream: Int32
    thread: Int32
    correlation: Int64
    graph_node: Int64
    step: Int32
    phase: Int32
    stack: Int32
    names: tuple[str, ...]
    threads: tuple[Thread, ...]
    source: Source

    def __len__(self) -> int:
        """Number of events."""
        return int(self.kind.shape[0])

    def of_kind(self, *kinds: Kind) -> Bool:
        """Mask [n] of the events of these kinds."""
        table = np.zeros(256, dtype=np.bool_)
        table[list(kinds)] = True
        return table[self.kind]

    @property
    def device_mask(self) -> Bool:
        """Mask [n] of device work: kernels, copies and sets, those inside graphs included."""
        return self.of_kind(*DEVICE_KINDS)

    def devices(self) -> tuple[int, ...]:
        """Indices of the devices that did work, ascending."""
        found = np.unique(self.device[self.device_mask])
        return tuple(int(index) for index in found)

    def name_of(self, event: int) -> str:
        """The name of one event."""
        return self.names[int(self.name[event])]

    def take(self, rows: Bool | Index) -> Self:
        """The timeline of these rows only, with the same names, threads and source."""
        return replace(self, **{column: getattr(self, column)[rows] for column in COLUMNS})

    def with_launch_context(self, *, step: Int32, phase: Int32) -> Self:
        """The same events with the step and the phase each was launched in."""
        return replace(self, step=step, phase=phase)


COLUMNS = (
    "kind",
    "name",
    "start_ns",
    "end_ns",
    "device",
    "stream",
    "thread",
    "correlation",
    "graph_node",
    "step",
    "phase",
    "stack",
)
