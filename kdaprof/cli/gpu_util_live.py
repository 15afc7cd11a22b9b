"""The live line of a watch: what each card does now, redrawn in place twice a second at most."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TextIO

from kdaprof.instruments.watch.loop import Sink
from kdaprof.runs.units import format_fraction, format_value
from kdaprof.runs.util import UtilReading

_PERIOD_NS = 500_000_000
_SHOWN = ("util", "mem_used_bytes", "power_w", "sm_clock_hz")


class LiveLine:
    """A sink in front of another. Off, it only passes on."""

    def __init__(self, behind: Sink, stream: TextIO, *, on: bool) -> None:
        self._behind = behind
        self._stream = stream
        self._on = on
        self._began_ns: int | None = None
        self._due_ns = 0
        self._now: dict[str | None, dict[str, UtilReading]] = {}

    def tick(self, t_ns: int, late_ns: int) -> None:
        """Show what the last sample said, when it is time."""
        self._behind.tick(t_ns, late_ns)
        if not self._on:
            return
        if self._began_ns is None:
            self._began_ns = t_ns
        if self._now and t_ns >= self._due_ns:
            self._due_ns = t_ns + _PERIOD_NS
            self._draw(f"{(t_ns - self._began_ns) / 1e9:.0f} s  " + "  │  ".join(map(_card, self._now.values())))

    def add(self, rows: Sequence[UtilReading]) -> None:
        """Keep the latest of each card."""
        self._behind.add(rows)
        if self._on:
            for row in rows:
                if row.field in _SHOWN:
                    self._now.setdefault(row.uuid, {})[row.field] = row

    def end(self) -> None:
        """Take the line away."""
        if self._on and self._now:
            self._draw("")

    def _draw(self, text: str) -> None:
        width = max(20, shutil.get_terminal_size().columns - 1)
        self._stream.write(f"\r\x1b[2K{text[:width]}")
        self._stream.flush()


def _card(readings: dict[str, UtilReading]) -> str:
    util = readings.get("util")
    parts = ["util —" if util is None or util.value is None else f"util {format_fraction(util.value)}"]
    for field, unit in (("mem_used_bytes", "B"), ("power_w", "W"), ("sm_clock_hz", "Hz")):
        reading = readings.get(field)
        if reading is not None and reading.value is not None:
            parts.append(format_value(reading.value, unit))  # type: ignore[arg-type]
    return " · ".join(parts)
