"""What a closed profiler does with the steps of a loop that goes on: nothing, which it says once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

LATE = "steps were taken after the profiler was closed: they are not in the run; close it behind the last step"


class LateStepWarning(UserWarning):
    """A step began after `StepProfiler.close()`; said once a profiler."""


class LateSteps:
    """Stands where the recorder's borders were. Takes none and raises nothing; the first step calls `note`."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note: Callable[[str], None] | None = note

    def step(self, tokens: int | None = None) -> AbstractContextManager[None]:
        """A step that is in no run."""
        self._say()
        return nullcontext()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """A phase that is in no run."""
        return nullcontext()

    def begin_step(self, tokens: int | None = None) -> None:
        """A step that is in no run."""
        self._say()

    def end_step(self, tokens: int | None = None) -> None:
        """Nothing is open."""

    def begin_phase(self, name: str) -> None:
        """A phase that is in no run."""

    def end_phase(self) -> None:
        """Nothing is open."""

    def _say(self) -> None:
        note, self._note = self._note, None
        if note is None:
            return
        note(LATE)
        with suppress(Exception):  # where warnings are errors the note has to do
            warnings.warn(LATE, LateStepWarning, stacklevel=3)
