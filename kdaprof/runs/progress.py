"""How far a long measurement is: the seam between whoever measures and whoever shows it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told by whoever does the work. The order is `start`, any number of `advance` and `note`, `close`."""

    def start(self, total: int) -> None:
        """The work has `total` parts."""
        ...

    def advance(self, text: str) -> None:
        """One part is done; `text` says which comes next or was finished."""
        ...

    def note(self, text: str) -> None:
        """Something worth a line of its own, kept above the bar."""
        ...

    def close(self) -> None:
        """The work has ended, however; safe to call more than once."""
        ...
