"""How far a long measurement is: a bar for people and silence for everything else."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from kdaprof.runs.progress import Progress


class Silent:
    """Says nothing: `--json`, tests, workers."""

    def start(self, total: int) -> None:
        """Nothing."""

    def advance(self, text: str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def open_progress(stream: IO[str]) -> Progress:
    """A bar on `stream` (people's, so stderr): redrawn in place on a terminal, plain lines elsewhere."""
    return BarProgress(Console(file=stream, highlight=False, emoji=False))


class BarProgress:
    """A bar on `console` where it is a terminal; plain lines where it is not, one a part.

    A timer thread would wake beside the measurement, so the bar redraws only when it is told something.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._total = 0
        self._done = 0

    def start(self, total: int) -> None:
        """Show the empty bar."""
        self._total, self._done = total, 0
        if not self._console.is_terminal:
            return
        columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = Bar(*columns, console=self._console, auto_refresh=False, transient=True)
        self._task = self._bar.add_task("", total=total)
        self._bar.start()
        self._bar.refresh()

    def advance(self, text: str) -> None:
        """One part further."""
        self._done += 1
        if self._bar is None or self._task is None:
            self._console.print(f"[{self._done}/{self._total}] {text}", markup=False, highlight=False, soft_wrap=True)
            return
        self._bar.update(self._task, completed=self._done, description=escape(text), refresh=True)

    def note(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bar away; the terminal is as it was."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
