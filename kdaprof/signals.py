"""Signals that go elsewhere for a while: what was there before is put back, whoever had set it.

Python knows only the handlers that were set through it. One that C code set (an embedding program, `faulthandler`, a
library) reads as None or as the default, so that what the system itself has is kept and put back.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]

_ROOM = 512
"""Bytes for a `struct sigaction`, which no system has larger; it is kept as it is and never read."""


@contextmanager
def signals_to(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Give each signal to its handler inside the block. Off the main thread, which alone may, they stay as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    actions = {number: _action(number) for number in handlers}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
            _put_back(number, actions[number])


def _action(number: int) -> ctypes.Array[ctypes.c_char] | None:
    """What the system does at this signal; None where there is no `sigaction`, as on Windows."""
    kept = ctypes.create_string_buffer(_ROOM)
    return kept if _sigaction(number, None, kept) == 0 else None


def _put_back(number: int, kept: ctypes.Array[ctypes.c_char] | None) -> None:
    if kept is not None:
        _sigaction(number, kept, None)


def _sigaction(number: int, new: object, old: object) -> int:
    try:
        return int(ctypes.CDLL(None).sigaction(number, new, old))
    except (OSError, TypeError, AttributeError):
        return -1
