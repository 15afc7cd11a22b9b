"""Waiting for a card whose clock left its band: a bounded pause between rounds, longer each time it was not enough.

The band is that of the first round. An idle card's clock says nothing, so that the pause ends when no limit holds
any more, or with its time; whether it helped shows in the clocks of the next round.
"""

from __future__ import annotations

from collections.abc import Sequence

from kdaprof.instruments.clock import Clock
from kdaprof.instruments.sensor import GpuSensor
from kdaprof.runs.conditions import LIMITING_REASONS

BAND = 0.05
"""Half the width of the band, as a share of its middle: what Q04 allows."""
FIRST_PAUSE_NS = 500_000_000
LONGEST_PAUSE_NS = 8_000_000_000
MOST_IN_ALL_NS = 15_000_000_000
_LOOK_NS = 250_000_000


class CoolDown:
    """Fed with the SM clocks of each round of a group of cells. Never waits longer than `most_ns` in all."""

    def __init__(self, sensor: GpuSensor | None, clock: Clock, *, most_ns: int = MOST_IN_ALL_NS) -> None:
        self._sensor = sensor
        self._clock = clock
        self._left_ns = most_ns
        self._pause_ns = FIRST_PAUSE_NS
        self._middle_hz: float | None = None

    def after_round(self, clocks_hz: Sequence[int]) -> str | None:
        """Pause where the round's clocks, or a limit that holds, ask for it; what was done, in words, else None."""
        if self._sensor is None or not clocks_hz:
            return None
        middle = float(sorted(clocks_hz)[len(clocks_hz) // 2])
        limits = self._limits()
        # The highest round so far is the band's: a card that warms up falls out of it below.
        self._middle_hz = middle if self._middle_hz is None else max(self._middle_hz, middle)
        low = middle < (1 - BAND) * self._middle_hz
        if not low and not limits:
            self._pause_ns = FIRST_PAUSE_NS
            return None
        why = ", ".join(limits) or f"the SM clock fell to {middle / self._middle_hz:.0%} of its best round"
        if self._left_ns <= 0:
            return f"{why}: no more pauses, the time for them is used up"
        began = self._clock.now_ns()
        allowed = min(self._pause_ns, self._left_ns)
        while (spent := self._clock.now_ns() - began) < allowed:
            self._clock.sleep_ns(min(_LOOK_NS, allowed - spent))
            if limits and not self._limits():
                break
        waited = self._clock.now_ns() - began
        self._left_ns -= waited
        self._pause_ns = min(2 * self._pause_ns, LONGEST_PAUSE_NS)
        return f"{why}: paused {waited / 1e9:.1f} s before the next round"

    def _limits(self) -> tuple[str, ...]:
        assert self._sensor is not None
        return tuple(sorted(LIMITING_REASONS.intersection(self._sensor.throttle_reasons().value or ())))
