"""What the kernel counts for each thread of a process: time on a core, and time ready without one.

Read from `/proc/PID/task/TID/schedstat`, which needs no rights over the process and does not stop it. py-spy's Python
stacks say where a thread is, and these counters whether it ran there or waited: a line that sleeps and a line that
computes look the same in a stack.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from kdaprof.instruments.clock import Clock
from kdaprof.runs.stacks import ThreadTicks

PROC = Path("/proc")
SLEEPER_EVERY = 10
"""A thread that did not run between two looks is looked at in every tenth tick: pools have hundreds of them."""


class ThreadMeter:
    """The counters of one process, tick by tick. A thread or process that ends just stops having ticks."""

    def __init__(self, pid: int, clock: Clock, proc: Path = PROC) -> None:
        self._pid, self._clock, self._tasks = pid, clock, proc / str(pid) / "task"
        self._rows: dict[int, list[tuple[int, int, int]]] = {}
        self._names: dict[int, str] = {}
        self._ticks = 0

    def tick(self) -> None:
        """Look at every thread once; the sleeping ones in every tenth tick."""
        try:
            tids = os.listdir(self._tasks)
        except OSError:
            return
        self._ticks += 1
        for text in tids:
            tid = int(text)
            rows = self._rows.get(tid, [])
            asleep = len(rows) > 1 and rows[-1][1:] == rows[-2][1:] and tid != self._pid
            if not asleep or self._ticks % SLEEPER_EVERY == 0:
                self._read(tid)

    def run_ns(self) -> int:
        """Time on a core of all threads at their last look; it stands still while the process is stopped."""
        return sum(rows[-1][1] for rows in self._rows.values())

    def ticks(self) -> tuple[ThreadTicks, ...]:
        """Every thread that was seen twice or more, the first one first."""
        return tuple(
            self._thread(tid, np.array(rows, np.int64)) for tid, rows in sorted(self._rows.items()) if len(rows) > 1
        )

    def _thread(self, tid: int, rows: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> ThreadTicks:
        return ThreadTicks(tid=tid, name=self._names[tid], t_ns=rows[:, 0], run_ns=rows[:, 1], delay_ns=rows[:, 2])

    def _read(self, tid: int) -> None:
        place = self._tasks / str(tid)
        try:
            run, delay = (place / "schedstat").read_bytes().split()[:2]
            if tid not in self._names:
                self._names[tid] = (place / "comm").read_text(errors="replace").strip()
        except (OSError, ValueError):  # it ended; or a kernel without CONFIG_SCHED_INFO
            return
        self._rows.setdefault(tid, []).append((self._clock.now_ns(), int(run), int(delay)))


def state(pid: int, proc: Path = PROC) -> str | None:
    """The kernel's letter for the process: R, S, D, T (stopped), t (held by a tracer), Z; None when it is gone."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()[0]


def cpu_ns(pid: int, proc: Path = PROC) -> int | None:
    """Time on a core of a process, its living threads; None when it is gone."""
    total = 0
    try:
        for task in (proc / str(pid) / "task").iterdir():
            total += int((task / "schedstat").read_bytes().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return total
