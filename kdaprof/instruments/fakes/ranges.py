"""Ranges that a test can look at."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class FakeRanges:
    """Records ranges as (name, category, payload); `open` holds those that were not ended."""

    missing: str | None = None
    started: list[tuple[str, str, int | float | None]] = field(default_factory=list)
    open: set[int] = field(default_factory=set)

    def start(self, name: str, category: str, payload: int | float | None = None) -> int:
        """Begin a range."""
        self.started.append((name, category, payload))
        self.open.add(len(self.started))
        return len(self.started)

    def end(self, token: int) -> None:
        """End it; KeyError when it is not open."""
        self.open.remove(token)
