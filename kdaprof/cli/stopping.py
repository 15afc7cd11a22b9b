"""Ctrl-C and SIGTERM during a measurement: the first stops it and keeps what was measured, the second ends at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kdaprof.errors import Exit
from kdaprof.signals import signals_to


@contextmanager
def stoppable() -> Iterator[None]:
    """First Ctrl-C or SIGTERM: stop, keep what is measured. Second: end at once."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, _leave)
        signal.signal(signal.SIGTERM, _leave)
        raise KeyboardInterrupt

    with signals_to({signal.SIGINT: stop, signal.SIGTERM: stop}):
        yield


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.stderr.flush()
    os._exit(Exit.INTERRUPTED)
