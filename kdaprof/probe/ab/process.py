"""A command in a session of its own: bounded in time, and ended with all its children whatever happens here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

PYTHON = "{python}"
"""Stands in a contract's command for the interpreter that kdaprof runs in."""
_TAIL = 300


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: its exit code, None when it took too long, and its last line of output."""

    code: int | None
    last_line: str

    def why(self, timeout_s: float) -> str | None:
        """What went wrong; None when it ended with 0."""
        if self.code == 0:
            return None
        if self.code is None:
            return f"took longer than {timeout_s:g} s and was ended"
        how = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return f"ended with {how}: {self.last_line or 'no output'}"


class RunCommand(Protocol):
    """Runs a command to its end. The seam that tests replace."""

    def __call__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path, timeout_s: float) -> Ended:
        """How it ended; its output goes to the file `log`."""
        ...


def run_command(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path, timeout_s: float) -> Ended:
    """Run `argv` in `cwd` with `env` added to ours. A command that cannot be started ends with 127, as in a shell."""
    command = [sys.executable if part == PYTHON else part for part in argv]
    with log.open("ab") as sink:
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        except OSError as error:
            return Ended(127, f"{command[0]}: {error.strerror or error}")
        try:
            code: int | None = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_group(process)
    return Ended(code, last_line(log))


def modules_of(folder: Path) -> str:
    """PYTHONPATH with which modules in `folder` are found before installed ones."""
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads its session, and whatever it started; nothing happens when all have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_line(log: Path) -> str:
    """The last line that says something."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line.strip()[:_TAIL] for line in reversed(lines) if line.strip()), "")
