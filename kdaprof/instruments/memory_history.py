"""Who allocates: torch's memory history around a few steps, by call site, and the pool's blocks behind them.

A recorded allocation costs its Python stack, so that nothing is timed while the history is on. Importing this module
imports torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import torch

from kdaprof.runs.memory import AllocationSite, Pool

MAX_ENTRIES = 100_000
"""Events that the history keeps; older ones are overwritten. A training step makes some thousands."""
NO_PYTHON = "no Python frame (autograd's own kernels)"
_TORCH = str(Path(torch.__file__).parent)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of an allocation's stack."""

    filename: str
    line: int
    name: str


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the history: `action` is `alloc`, `free_completed`, `segment_alloc`, …"""

    action: str
    size: int
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a segment; a tensor holds it unless `state` is `inactive`."""

    size: int
    state: str


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory of one call of the driver."""

    device: int
    total_size: int
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What torch's snapshot says of every device; fields that are not needed here are left in it."""

    segments: tuple[Segment, ...] = ()
    device_traces: tuple[tuple[Event, ...], ...] = ()


@dataclass(slots=True)
class Recorded:
    """Filled when the recording ends."""

    sites: tuple[AllocationSite, ...] = ()
    pool: Pool | None = None
    missing: str | None = None


class MemoryHistory(Protocol):
    """Records allocations with their call sites, and can empty the pool."""

    def recording(self) -> AbstractContextManager[Recorded]:
        """A context that gives a `Recorded`, filled when it ends; the history is off again behind it, whatever
        happened inside.
        """
        ...

    def empty(self) -> None:
        """Give the pool's free segments back to the driver."""
        ...


@dataclass(slots=True)
class CudaMemoryHistory:
    """torch's own history of one CUDA device. A history that is on already, someone else's, is left as it is."""

    device_index: int
    most: int = 10

    @contextmanager
    def recording(self) -> Iterator[Recorded]:
        """Record what is allocated inside."""
        found = Recorded()
        if _already_on():
            found.missing = "a memory history of the program's own is on"
            yield found
            return
        torch.cuda.memory._record_memory_history(
            "all", context="alloc", stacks="python", max_entries=MAX_ENTRIES, clear_history=True
        )
        try:
            yield found
            torch.cuda.synchronize(self.device_index)
            taken = read(torch.cuda.memory._snapshot(self.device_index))
            found.pool = pool_of(taken, self.device_index)
            events = taken.device_traces[self.device_index]
            found.sites = sites_of(events, self.most)
            if len(events) >= MAX_ENTRIES:
                found.missing = f"the history holds {MAX_ENTRIES} events and overflowed: call sites are incomplete"
        finally:
            torch.cuda.memory._record_memory_history(None)

    def empty(self) -> None:
        """Give the pool's free segments back to the driver."""
        torch.cuda.empty_cache()


def _already_on() -> bool:
    asked = getattr(torch._C, "_cuda_isHistoryEnabled", None)  # builds without CUDA lack it
    return asked is not None and bool(asked())


def read(raw: object) -> Snapshot:
    """A snapshot as torch gives it, typed."""
    return msgspec.convert(raw, Snapshot, strict=False)


def pool_of(taken: Snapshot, device_index: int) -> Pool:
    """The pool of one device."""
    mine = [segment for segment in taken.segments if segment.device == device_index]
    free = [block.size for segment in mine for block in segment.blocks if block.state == "inactive"]
    return Pool(
        reserved_bytes=sum(segment.total_size for segment in mine),
        free_bytes=sum(free),
        largest_free_bytes=max(free, default=0),
        segments=len(mine),
    )


def sites_of(events: tuple[Event, ...], most: int) -> tuple[AllocationSite, ...]:
    """Allocations by place and size, the most bytes together first; one that came once is not a repeated one."""
    counts = Counter((place_of(event.frames), event.size) for event in events if event.action == "alloc")
    repeated = [AllocationSite(where=w, size_bytes=s, count=n) for (w, s), n in counts.items() if n > 1]
    return tuple(sorted(repeated, key=lambda site: (-site.size_bytes * site.count, site.where))[:most])


def place_of(frames: tuple[Frame, ...]) -> str:
    """`model.py:12 in forward`: the innermost frame outside torch, its folder kept to tell namesakes apart."""
    python = [frame for frame in frames if frame.filename.endswith(".py")]
    outside = next((frame for frame in python if not frame.filename.startswith(_TORCH)), None)
    if outside is None:
        return NO_PYTHON
    return f"{'/'.join(Path(outside.filename).parts[-2:])}:{outside.line} in {outside.name}"
