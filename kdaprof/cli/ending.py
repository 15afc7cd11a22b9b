"""The end of a command line: one line on stderr, and output that may be full or gone. Imports nothing heavy."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from kdaprof.errors import KdaprofError


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
