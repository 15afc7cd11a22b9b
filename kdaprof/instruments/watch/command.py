"""A command inside a watch: it keeps its terminal, gets the signals that we get, and its exit code is ours."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO

from kdaprof.errors import UsageError
from kdaprof.signals import signals_to

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ASKS_TO_END = frozenset({signal.SIGINT, signal.SIGTERM})
_FROM_THE_KEYBOARD = frozenset({signal.SIGINT, signal.SIGQUIT})


def check_command(argv: Sequence[str]) -> None:
    """Raise UsageError for a program that is not there, before anything older makes way for what it would leave."""
    if shutil.which(argv[0]) is None:
        raise UsageError(f"{argv[0]}: cannot be started (no such program, or not executable)")


class Command:
    """The running command. Signals arrive at any moment, so what they do is one call."""

    def __init__(
        self, argv: Sequence[str], *, stdout: IO[str] | int | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        """Start it, in our environment or in `environ`. Errors: UsageError when it cannot be started."""
        try:
            self._process = subprocess.Popen(list(argv), stdout=stdout, env=None if environ is None else dict(environ))
        except OSError as error:
            raise UsageError(f"{argv[0]}: cannot be started ({error.strerror or error})") from error
        self._asked = 0

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def signal(self, number: int) -> None:
        """Pass a signal on; a second request to end, from whomever, ends it at once."""
        if self._process.poll() is not None:
            return
        self._asked += number in _ASKS_TO_END
        if self._asked >= 2:
            self._process.kill()
        elif not (number in _FROM_THE_KEYBOARD and in_terminal()):
            self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code; 128 + n when signal n ended it."""
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@contextmanager
def handled(handle: Callable[[int], None]) -> Iterator[None]:
    """Give the signals to `handle` instead; put back what was there before."""

    def taken(number: int, _frame: FrameType | None) -> None:
        handle(number)

    # What nohup has us ignore stays ignored.
    taking = [number for number in FORWARDED if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    with signals_to(dict.fromkeys(taking, taken)):
        yield


def in_terminal() -> bool:
    """Whether the keyboard's signals go to our whole group, the command included: it has them already."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def process_cpu_ns() -> int:
    """CPU time of this process, all threads; children are not in it."""
    return time.process_time_ns()
