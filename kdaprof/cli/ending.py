"""The end of a command line: one line on stderr, and output that may be full or gone. Imports nothing heavy."""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from kdaprof.errors import KdaprofError

_AGAIN_S = 0.02


def tell(text: str) -> None:
    """One line of kdaprof's own on stderr. A stderr that is full or gone leaves the exit code to speak."""
    try:
        sys.stderr.write(f"kdaprof: {' '.join(text.split())}\n")
        sys.stderr.flush()
    except OSError:
        return


def forget_output() -> None:
    """Let what is still buffered go nowhere, so that the interpreter does not fail again when it flushes at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _to_nowhere(stream)


def at_last(code: Callable[[], int | None]) -> None:
    """Call this first: behind all that is registered for the exit later, the process ends with `code()`, if any.

    An interrupt caught during an import may be remembered inside the interpreter, which then ends by SIGINT at the
    very end, and the exit code is lost.
    """

    def end() -> None:
        known = code()
        if known is not None:
            forget_output()
            os._exit(known)

    atexit.register(end)


def ask_again() -> None:
    """Raise an interrupt again that Python dropped, as it does inside callbacks of an import or of the collector."""
    before = sys.unraisablehook

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            # From where the callback has ended: here it would be dropped again.
            again = threading.Timer(_AGAIN_S, _thread.interrupt_main)
            again.daemon = True
            again.start()
        else:
            before(dropped)

    sys.unraisablehook = hook


@contextmanager
def after_command(ended: bool) -> Iterator[None]:
    """Around what is shown once a command has `ended`: its exit code passes through, whatever becomes of our output.

    Without a command (False) all errors are the caller's.
    """
    try:
        yield
        if ended:
            sys.stdout.flush()
    except Exception as error:
        if not ended:
            raise
        forget_output()
        if isinstance(error, OSError) and error.filename is None:
            tell(f"cannot write the output ({error.strerror or error})")
        else:
            tell(str(error) if isinstance(error, KdaprofError) else f"{type(error).__name__}: {error}")


def _to_nowhere(stream: IO[str]) -> None:
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
