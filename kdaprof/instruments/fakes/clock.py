"""A clock that a test moves."""

from __future__ import annotations


class FakeClock:
    """Stands still but for `advance`, `sleep_ns`, and `tick_ns` added at every reading."""

    def __init__(self, start_ns: int = 1_000_000, *, unix_offset_ns: int = 10**18, tick_ns: int = 0) -> None:
        self.time_ns = start_ns
        self.unix_offset_ns = unix_offset_ns
        self.tick_ns = tick_ns
        self.slept_ns: list[int] = []

    def now_ns(self) -> int:
        """Monotonic time."""
        self.time_ns += self.tick_ns
        return self.time_ns

    def unix_ns(self) -> int:
        """Monotonic time plus a fixed offset."""
        return self.time_ns + self.unix_offset_ns

    def sleep_ns(self, duration_ns: int) -> None:
        """Advance by the duration, at once."""
        self.slept_ns.append(duration_ns)
        self.time_ns += max(0, duration_ns)

    def advance(self, duration_ns: int) -> None:
        """Let time pass."""
        self.time_ns += duration_ns
