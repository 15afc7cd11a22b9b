"""Where a verb's output goes: people's text through rich, JSON as bytes and alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import IO, Any

from rich.console import Console

from kdaprof.runs.codec import dumps


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `main`, which knows what to return; rich would exit on its own."""
        raise BrokenPipeError


def out_console() -> Console:
    """People's text on stdout: colours on a terminal, plain and never cut when piped."""
    return _console(sys.stdout)


def err_console() -> Console:
    """People's text on stderr: progress and notes beside a result."""
    return _console(sys.stderr)


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document, alone on stdout."""
    print_file(dumps(dict(document)))


def print_file(content: bytes) -> None:
    """What is likely to be redirected into a file: UTF-8 whatever the locale says."""
    sys.stdout.flush()
    buffer: IO[bytes] | None = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(content.decode())
    else:
        buffer.write(content)
        buffer.flush()


def _console(stream: IO[str]) -> Console:
    return _Console(file=stream, highlight=False, emoji=False, markup=False)
