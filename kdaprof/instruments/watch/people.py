"""Processes of a watch: those below one process id, their names, and whether that process is still there."""

from __future__ import annotations

import psutil

from kdaprof.errors import UsageError


class Family:
    """A process and its descendants. Asked by process id; each id is looked up once, for /proc is not free."""

    def __init__(self, pid: int) -> None:
        """Errors: UsageError when there is no such process."""
        try:
            self._root = psutil.Process(pid)
            self._root.create_time()
        except (psutil.NoSuchProcess, ValueError, OverflowError):  # psutil refuses numbers that can be no process
            raise UsageError(f"--pid {pid}: no such process; is it in another container?") from None
        except psutil.AccessDenied:
            raise UsageError(f"--pid {pid}: may not be looked at; run as its user") from None
        self._known: dict[int, bool] = {pid: True}

    def holds(self, pid: int) -> bool:
        """Whether that process is the root or below it."""
        if pid not in self._known:
            try:
                self._known[pid] = any(parent.pid == self._root.pid for parent in psutil.Process(pid).parents())
            except psutil.Error:
                self._known[pid] = False
        return self._known[pid]

    def alive(self) -> bool:
        """Whether the root still runs: neither gone, nor replaced by another of its number, nor a zombie."""
        try:
            return self._root.is_running() and self._root.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False
