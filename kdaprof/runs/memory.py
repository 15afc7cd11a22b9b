"""What a step did to the caching allocator, as it was seen: counters step by step, call sites, walls of two pools."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationSite:
    """Allocations of one size from one place: `count` in the recorded steps together, `size_bytes` each."""

    where: str
    size_bytes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The pool behind the last recorded step: bytes reserved from the driver, bytes of them that no tensor holds,
    the largest free block, and the number of segments.
    """

    reserved_bytes: int
    free_bytes: int
    largest_free_bytes: int
    segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Steps in a row, each read behind its end: allocations, bytes held and reserved; highest bytes held in any.

    `warm_wall_ns` and `emptied_wall_ns` are walls of steps in turns, without and with the pool given back to the
    driver right before. `sites` are the largest repeated allocations; `missing` says why there are none.
    """

    allocs: tuple[int, ...]
    held_bytes: tuple[int, ...]
    reserved_bytes: tuple[int, ...]
    peak_bytes: int
    pool: Pool | None = None
    sites: tuple[AllocationSite, ...] = ()
    warm_wall_ns: tuple[int, ...] = ()
    emptied_wall_ns: tuple[int, ...] = ()
    missing: str | None = None
