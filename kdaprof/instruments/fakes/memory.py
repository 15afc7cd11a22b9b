"""A caching allocator in a few lines: first fit among free blocks, else a segment from the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from kdaprof.instruments.allocator import AllocatorCounters
from kdaprof.instruments.memory_history import Recorded
from kdaprof.runs.memory import AllocationSite, Pool


class FakePool:
    """An `Allocator` and a `MemoryHistory` at once. A block is never split: a request takes a free one of its size or
    up to twice it, as blocks of a workload with changing lengths do in effect.
    """

    missing: str | None = None

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.free: list[int] = []
        self.recordings: list[bool] = []
        self._allocs = self._bytes = self._peak = self._next = 0
        self._seen: Counter[tuple[str, int]] | None = None

    def alloc(self, size: int, where: str = "model.py:1 in forward") -> int:
        """A block's name."""
        fit = min((block for block in self.free if size <= block <= 2 * size), default=None)
        if fit is not None:
            self.free.remove(fit)
        self._next += 1
        self.held[self._next] = fit or size
        self._allocs, self._bytes = self._allocs + 1, self._bytes + size
        self._peak = max(self._peak, sum(self.held.values()))
        if self._seen is not None:
            self._seen[where, size] += 1
        return self._next

    def release(self, name: int) -> None:
        """Back into the pool."""
        self.free.append(self.held.pop(name))

    def read(self) -> AllocatorCounters:
        """The counters now."""
        held = sum(self.held.values())
        return AllocatorCounters(self._allocs, self._bytes, self._peak, held, held + sum(self.free))

    def reset_peak(self) -> None:
        """Set the peak to what is held now."""
        self._peak = sum(self.held.values())

    @contextmanager
    def recording(self) -> Iterator[Recorded]:
        """Record what is allocated inside; `recordings` tells whether each one was ended."""
        found, self._seen = Recorded(), Counter()
        self.recordings.append(False)
        try:
            yield found
            found.sites = tuple(AllocationSite(where=w, size_bytes=s, count=n) for (w, s), n in self._seen.items())
            found.pool = Pool(
                reserved_bytes=self.read().reserved_bytes,
                free_bytes=sum(self.free),
                largest_free_bytes=max(self.free, default=0),
                segments=len(self.held) + len(self.free),
            )
        finally:
            self._seen = None
            self.recordings[-1] = True

    def empty(self) -> None:
        """Give the free blocks back."""
        self.free.clear()
