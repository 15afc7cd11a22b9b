"""What the gate hangs in here, so that the kernels need not know the gate."""

from __future__ import annotations

from collections.abc import Callable

# Called at the start of each eager backward, on autograd's thread. None: nobody counts.
on_backward: Callable[[], None] | None = None
