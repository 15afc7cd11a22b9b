"""kdaprof, or a program, in a process of its own, watched from outside by what it leaves on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def running(command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """`command` in a process group of its own; whatever is left of it at the end is killed. `more` goes to Popen."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **more,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(process: subprocess.Popen[str], seen: Callable[[], bool], within_s: float = 60) -> None:
    """Wait for a sign on disk; the process must not have ended before."""
    end = time.monotonic() + within_s
    while not seen():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "no such sign"
        time.sleep(0.01)


def finished_cells(run: Path) -> int:
    """Cells that the record calls measured, read as anybody would while the probe writes."""
    path = run / "run.json"
    return sum(cell["status"] == "ok" for cell in json.loads(path.read_text())["cells"]) if path.exists() else 0
