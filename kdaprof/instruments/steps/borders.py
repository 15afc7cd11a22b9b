"""The device side of a border: a mark put into the device's queue, read when the device has passed it."""

from __future__ import annotations

from typing import Protocol, TypeAlias

Mark: TypeAlias = object
"""One mark; what it is only its `Borders` knows."""


class Borders(Protocol):
    """Marks of one device. `mark` only queues; nothing here but `wait` ever waits."""

    @property
    def missing(self) -> str | None:
        """Why there are no marks; None where there are."""
        ...

    def mark(self) -> Mark | None:
        """Put a mark into the current stream's queue; None where none can be put now (a graph is being captured)."""
        ...

    def reached(self, mark: Mark) -> bool:
        """Whether the device has passed the mark."""
        ...

    def between_ns(self, first: Mark, second: Mark) -> int | None:
        """Device time from one mark to the other, in ns, idle included; both must be reached. None if unknown."""
        ...

    def free(self, mark: Mark) -> None:
        """Give the mark back; it may be handed out again at once."""
        ...

    def wait(self) -> None:
        """Wait until every mark has been reached: for the end of the loop and the borders of profiled windows."""
        ...


class NoBorders:
    """A device without marks, with the reason."""

    def __init__(self, missing: str) -> None:
        self.missing: str | None = missing

    def mark(self) -> Mark | None:
        """There is no mark."""
        return None

    def reached(self, mark: Mark) -> bool:
        """Nothing to wait for."""
        return True

    def between_ns(self, first: Mark, second: Mark) -> int | None:
        """Unknown."""
        return None

    def free(self, mark: Mark) -> None:
        """Nothing to give back."""

    def wait(self) -> None:
        """Nothing to wait for."""
