"""Finding `nsys` and `ncu`, and running a command under them; the spawn is passed in.

Both tools run the command as their child in our process group, so that Ctrl-C reaches all of them; they then write
what they have, and we wait for that.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from kdaprof.errors import Exit, KdaprofError, UnavailableError, UsageError
from kdaprof.instruments.watch.command import Command, handled

Name = Literal["nsys", "ncu"]

# Where NVIDIA's installers and packages put them, below the root, newest last. PATH comes first.
_PLACES: dict[Name, tuple[str, ...]] = {
    "nsys": (
        "usr/local/cuda*/bin/nsys",
        "opt/nvidia/nsight-systems/*/bin/nsys",
        "opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    ),
    "ncu": ("usr/local/cuda*/bin/ncu", "usr/local/cuda*/nsight-compute-*/ncu", "opt/nvidia/nsight-compute/*/ncu"),
}
_PAGES: dict[Name, str] = {
    "nsys": "https://developer.nvidia.com/nsight-systems",
    "ncu": "https://developer.nvidia.com/nsight-compute",
}


class ToolFailedError(KdaprofError):
    """The tool ran and left nothing to read. The code that it or the command ended with passes through, unless 0."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        # No code of ours: `main` returns whatever number stands here.
        self.exit_code = code or Exit.ERROR  # type: ignore[assignment]


class Spawn(Protocol):
    """Runs a command to its end and returns its exit code; what it prints goes to our stderr when `quiet_stdout`."""

    def __call__(self, command: Sequence[str], environ: Mapping[str, str], *, quiet_stdout: bool) -> int:
        """Run one command."""
        ...


def find_tool(
    name: Name,
    *,
    environ: Mapping[str, str] | None = None,
    which: Callable[[str], str | None] = shutil.which,
    root: Path = Path("/"),
) -> str | None:
    """Path of the tool: the variable KDAPROF_NSYS or KDAPROF_NCU, else PATH, else where NVIDIA installs it."""
    environ = os.environ if environ is None else environ
    named = environ.get(f"KDAPROF_{name.upper()}")
    if named:
        return named
    on_path = which(name)
    if on_path is not None:
        return on_path
    for pattern in _PLACES[name]:
        found = sorted(root.glob(pattern))
        if found:
            return str(found[-1])
    return None


def need_tool(name: Name, found: str | None, instead: str) -> str:
    """The tool, or UnavailableError that says what to do: install it, or `instead`."""
    if found is None:
        raise UnavailableError(
            f"{name} is not installed here (looked at KDAPROF_{name.upper()}, PATH, /usr/local/cuda*, /opt/nvidia): "
            f"get it from {_PAGES[name]}, or {instead}"
        )
    return found


def spawn_attached(command: Sequence[str], environ: Mapping[str, str], *, quiet_stdout: bool) -> int:
    """Run with our own terminal; signals that we get are passed on, and the child has the time to write its report.

    Raises UnavailableError when the program cannot be started, KeyboardInterrupt after Ctrl-C, once the child has
    ended. A child ended by signal N gives 128 + N.
    """
    asked: list[int] = []
    running: list[Command] = []

    def passed_on(number: int) -> None:
        asked.append(number)
        for process in running:
            process.signal(number)

    with handled(passed_on):
        try:
            process = Command(command, stdout=sys.stderr.fileno() if quiet_stdout else None, environ=environ)
        except UsageError as error:
            raise UnavailableError(str(error)) from error
        early = tuple(asked)
        running.append(process)
        for number in early:
            process.signal(number)
        code = process.wait()
    if signal.SIGINT in asked:
        raise KeyboardInterrupt
    return code


def signal_of(code: int) -> str | None:
    """Name of the signal that an exit code of 128 + N speaks of; None for any other code."""
    try:
        return signal.Signals(code - 128).name
    except ValueError:
        return None


def ended(name: Name, code: int) -> str:
    """How the tool ended, with the signal's name where one ended it."""
    by = signal_of(code)
    return f"{name} ended with exit code {code}{'' if by is None else f' ({by})'}"


def shown(line: Sequence[str], environ: Mapping[str, str]) -> str:
    """A line as one would type it, with the variables that belong to it."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in environ.items()), shlex.join(line)])
