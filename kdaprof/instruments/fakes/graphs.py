"""A graph capture without a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class FakeGraphBackend:
    """A capture without a device: keeps a log of what was asked, and fails where told to.

    `on_begin` and `on_end` run when a capture begins and ends, and may raise; `pool_growth` is what a capture
    reserves and allocates, in bytes.
    """

    device_type: str = "cpu"
    log: list[str] = field(default_factory=list)
    capturing: bool = False
    stuck: bool = False
    random: int = 7
    reserved_bytes: int = 1 << 20
    allocated_bytes: int = 1 << 10
    pool_growth: tuple[int, int] = (2 << 20, 4096)
    on_begin: Callable[[], None] = lambda: None
    on_end: Callable[[], None] = lambda: None
    replays: int = 0

    def synchronize(self) -> None:
        """Logged."""
        self.log.append("synchronize")

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """Logged at both ends, also on an error."""
        self.log.append("stream>")
        try:
            yield
        finally:
            self.log.append("<stream")

    def save_random(self) -> int:
        """The random state."""
        return self.random

    def restore_random(self, saved: int, *, after_failure: bool) -> None:
        """Put it back; after a failure the generator is freed of its capture mode."""
        self.random = saved
        if after_failure:
            self.stuck = False

    def new_pool(self) -> str:
        """A pool."""
        return "pool"

    def begin(self, pool: str) -> object:
        """Begin to capture."""
        self.on_begin()
        self.log.append("begin")
        self.capturing = self.stuck = True
        return SimpleNamespace(pool=pool)

    def end(self, graph: object) -> None:
        """End the capture."""
        self.on_end()
        self.log.append("end")
        self.capturing = self.stuck = False
        self.reserved_bytes += self.pool_growth[0]
        self.allocated_bytes += self.pool_growth[1]

    def abandon(self, graph: object, pool: object) -> None:
        """End a broken capture; the generator stays stuck, as torch's does."""
        self.log.append("abandon")
        self.capturing = False

    def replay(self, graph: object) -> None:
        """Count it."""
        self.replays += 1

    def reset(self, graph: object) -> None:
        """Logged."""
        self.log.append("reset")

    def memory(self) -> Any:
        """Memory held now, as `PoolMemory` has it."""
        return SimpleNamespace(reserved_bytes=self.reserved_bytes, allocated_bytes=self.allocated_bytes)
