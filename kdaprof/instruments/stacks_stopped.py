"""A target that somebody stopped (SIGSTOP, Ctrl-Z): its stacks stand still, and all of its time looks like waiting."""

from __future__ import annotations

from collections.abc import Callable

from kdaprof.runs.units import format_ns

SAID_AFTER_NS = 100_000_000
"""A stop as short as this is not worth a word."""


def stopped_text(pid: int) -> str:
    """What is wrong with a stopped process, and what to do."""
    return f"process {pid} is stopped: `kill -CONT {pid}`"


class StopMeter:
    """Says at once that the target was stopped, and at the end for how long. Not meant: stops of a tracer (t)."""

    def __init__(self, pid: int, told: Callable[[str], None]) -> None:
        self._pid, self._told = pid, told
        self._since_ns: int | None = None
        self._said = False
        self._before_ns = 0

    def see(self, letter: str | None, t_ns: int) -> None:
        """The kernel's letter for the process at `t_ns`."""
        if letter != "T":
            self._before_ns += self._lasted(t_ns)
            self._since_ns, self._said = None, False
            return
        self._since_ns = t_ns if self._since_ns is None else self._since_ns
        if not self._said and self._lasted(t_ns) >= SAID_AFTER_NS:
            self._said = True
            self._told(stopped_text(self._pid))

    def note(self, t_ns: int) -> str | None:
        """What the recording that ends at `t_ns` must say; None where there is nothing to say."""
        stopped_ns = self._before_ns + self._lasted(t_ns)
        if stopped_ns < SAID_AFTER_NS:
            return None
        still = f"; it still is: `kill -CONT {self._pid}`" if self._since_ns is not None else ""
        return f"process {self._pid} was stopped for {format_ns(stopped_ns)}, which counts as waiting{still}"

    def _lasted(self, t_ns: int) -> int:
        return 0 if self._since_ns is None else t_ns - self._since_ns
