"""When py-spy held the process: native stacks stop it for each sample, and the kernel shows that it is stopped.

py-spy does not say how long a stop took, and the kernel counts it as waiting. Only from outside can it be told from
what the process waits for by itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kdaprof.instruments.clock import Clock
from kdaprof.instruments.stacks_threads import PROC, state
from kdaprof.runs.stacks import Holds

LOOK_EVERY_S = 0.001
"""A stop lasts from 1 ms (a shallow stack) to tens of ms; a look takes about 20 µs."""

UNSEEN_NS = 3_000_000
"""Two looks further apart than this, none of which found a stop, may have one between them."""


class HoldMeter:
    """Looks at the main thread's state again and again; a stop's ends lie midway between the looks around them."""

    def __init__(self, pid: int, clock: Clock, proc: Path = PROC) -> None:
        self._pid, self._clock, self._proc = pid, clock, proc
        self._rows: list[tuple[int, int]] = []
        self._open_ns: int | None = None
        self._last: tuple[int, str | None] | None = None
        self._looks = 0
        self._unseen_ns = 0

    def look(self) -> str | None:
        """The state's letter now; None when the process is gone."""
        letter = state(self._pid, self._proc)
        now = self._clock.now_ns()
        before_ns, before = (now, None) if self._last is None else self._last
        between = (before_ns + now) // 2
        if now - before_ns > UNSEEN_NS and "t" not in (before, letter):
            self._unseen_ns += now - before_ns
        if letter == "t":
            self._open_ns = between if self._open_ns is None else self._open_ns
        elif self._open_ns is not None:
            self._rows.append((self._open_ns, between))
            self._open_ns = None
        self._last = now, letter
        self._looks += 1
        return letter

    def holds(self) -> Holds:
        """Every stop that ended, in order."""
        return Holds(
            start_ns=np.array([start for start, _ in self._rows], np.int64),
            end_ns=np.array([end for _, end in self._rows], np.int64),
            looks=self._looks,
            unseen_ns=self._unseen_ns,
        )
