"""What a cell's failure is called: the exception's type and one line that says what to do."""

from __future__ import annotations

from typing import Final

from kdaprof.errors import UnavailableError
from kdaprof.runs.record import CellError, Status

_BACKTRACE: Final = "Exception raised from "
"""Where torch's C++ side begins its stack: addresses and paths of libraries, of no use to whoever reads a cell."""

_NO_MEMORY: Final = ("OutOfMemoryError", "MemoryError")
_NO_HOST_MEMORY: Final = "can't allocate memory"
"""How torch's CPU allocator says it, in a plain RuntimeError."""

_MOST: Final = 500
"""Characters of a text, the notes included."""


def describe(error: BaseException) -> CellError:
    """Type and text of an exception as one line of at most `_MOST` characters; out-of-memory gets its way out.

    The first lines together: torch.compile says in the first one that something failed, and in the next ones what.
    Behind them the exception's notes: where a target's step raised it.
    """
    told = str(error).split(_BACKTRACE, 1)[0]
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    text = " · ".join(lines[:6]) if lines else "no message"
    notes = "".join(f" · {note}" for note in getattr(error, "__notes__", ()))
    if type(error).__name__ in _NO_MEMORY or _NO_HOST_MEMORY in text:
        text += " — choose a smaller --shape"
    return CellError(type=type(error).__name__, text=text[: _MOST - len(notes)] + notes[:_MOST])


def status_of(error: BaseException) -> Status:
    """A path that cannot run here is unavailable; anything else is a failure."""
    return "unavailable" if isinstance(error, UnavailableError) else "failed"
