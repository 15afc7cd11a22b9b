"""The live line of a watch: what each card does now.

On a terminal of its own it is redrawn in place, twice a second at most. Around a command the cursor is the command's:
there it is an ordinary line every ten seconds, which neither erases nor moves anything.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Literal, TextIO

from kdaprof.instruments.watch.loop import Sink
from kdaprof.runs.units import format_fraction, format_value
from kdaprof.runs.util import UtilReading

How = Literal["redrawn", "lines", "off"]

_PERIOD_NS: dict[How, int] = {"redrawn": 500_000_000, "lines": 10_000_000_000, "off": 0}
_SHOWN = ("util", "mem_used_bytes", "power_w", "sm_clock_hz")


class LiveLine:
    """A sink in front of another. Off, it only passes on."""

    def __init__(self, behind: Sink, stream: TextIO, *, how: How) -> None:
        self._behind = behind
        self._stream = stream
        self._how: How = how
        self._began_ns: int | None = None
        self._due_ns = 0
        self._now: dict[str | None, dict[str, UtilReading]] = {}

    def tick(self, t_ns: int, late_ns: int) -> None:
        """Show what the last sample said, when it is time."""
        self._behind.tick(t_ns, late_ns)
        if self._how == "off":
            return
        if self._began_ns is None:
            self._began_ns = t_ns
            self._due_ns = t_ns if self._how == "redrawn" else t_ns + _PERIOD_NS["lines"]
        if self._now and t_ns >= self._due_ns:
            self._due_ns = t_ns + _PERIOD_NS[self._how]
            self._draw(f"{(t_ns - self._began_ns) / 1e9:.0f} s  " + "  │  ".join(map(_card, self._now.values())))

    def add(self, rows: Sequence[UtilReading]) -> None:
        """Keep the latest of each card."""
        self._behind.add(rows)
        if self._how != "off":
            for row in rows:
                if row.field in _SHOWN:
                    self._now.setdefault(row.uuid, {})[row.field] = row

    def end(self) -> None:
        """Take the line away."""
        if self._how == "redrawn" and self._now:
            self._draw("")

    def _draw(self, text: str) -> None:
        width = max(20, shutil.get_terminal_size().columns - 1)
        try:
            self._stream.write(f"\r\x1b[2K{text[:width]}" if self._how == "redrawn" else f"kdaprof: {text}\n")
            self._stream.flush()
        except OSError:  # the terminal is gone; the samples are not
            self._how = "off"


def _card(readings: dict[str, UtilReading]) -> str:
    util = readings.get("util")
    parts = ["util —" if util is None or util.value is None else f"util {format_fraction(util.value)}"]
    for field, unit in (("mem_used_bytes", "B"), ("power_w", "W"), ("sm_clock_hz", "Hz")):
        reading = readings.get(field)
        if reading is not None and reading.value is not None:
            parts.append(format_value(reading.value, unit))  # type: ignore[arg-type]
    return " · ".join(parts)
