"""py-spy as a process of ours: its command line, its end, what it wrote, and what its refusals mean."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Protocol

from kdaprof.errors import UnavailableError
from kdaprof.runs.stacks import NoStacks

_COUNTS = re.compile(r"Samples: (\d+) Errors: (\d+)")
_RIGHTS = re.compile(r"permission denied|operation not permitted", re.IGNORECASE)
_RIGHTS_NEXT = (
    "docker run --cap-add=SYS_PTRACE, or sudo sysctl kernel.yama.ptrace_scope=1 and let kdaprof start the command, "
    "or run kdaprof as the owner of the process or as root; `kdaprof doctor` says which"
)


class Spy(Protocol):
    """A running py-spy. The seam that tests replace."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def ended(self) -> bool:
        """Whether it has ended by itself."""
        ...

    def finish(self, patience_s: float) -> bool:
        """Ask it to write and end; after `patience_s` it is killed. Whether it ended by itself."""
        ...

    def output(self) -> str:
        """What it printed."""
        ...

    def trace(self) -> tuple[bytes, int] | None:
        """The Chrome trace and the unix time (ns) of its last write; None when there is none."""
        ...

    def close(self) -> None:
        """Kill it if it still runs, and remove its files."""
        ...


class PySpy:
    """The real one. In a session of its own, so that Ctrl-C reaches it through us, when we want it to."""

    def __init__(self, pid: int, *, rate_hz: int, native: bool) -> None:
        """Attach to `pid`. Errors: UnavailableError when py-spy is not installed."""
        self._folder = tempfile.TemporaryDirectory(prefix="kdaprof-stacks-")
        self._file = Path(self._folder.name) / "trace.json"
        self._log = Path(self._folder.name) / "log"
        with self._log.open("wb") as sink:
            self._process = subprocess.Popen(
                [find_spy(), *arguments(pid, self._file, rate_hz=rate_hz, native=native)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    def finish(self, patience_s: float) -> bool:
        """Ask it to write and end; after `patience_s` it is killed. Whether it ended by itself."""
        if not self.ended():
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        return True

    def output(self) -> str:
        """What it printed."""
        return self._log.read_text(errors="replace")

    def trace(self) -> tuple[bytes, int] | None:
        """The Chrome trace and the unix time (ns) of its last write; None when there is none."""
        try:
            return self._file.read_bytes(), self._file.stat().st_mtime_ns
        except OSError:
            return None

    def close(self) -> None:
        """Kill it if it still runs, and remove its files."""
        if not self.ended():
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


def find_spy() -> str:
    """Where py-spy is: beside this Python first. Errors: UnavailableError with the way out."""
    found = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if found is None:
        raise UnavailableError("py-spy is not installed here: pip install 'py-spy>=0.4'")
    return found


def arguments(pid: int, file: Path, *, rate_hz: int, native: bool) -> list[str]:
    """The arguments of `py-spy`. It refuses --native and --nonblocking together.

    Idle threads are recorded, since py-spy's Chrome trace lets the last stack of a thread that it leaves out go on.
    """
    how = "--native" if native else "--nonblocking"
    target = ["--pid", str(pid), "--rate", str(rate_hz)]
    return ["record", *target, "--format", "chrometrace", "--output", str(file), "--idle", "--threads", how]


def counts(output: str) -> tuple[int, int] | None:
    """How many samples were taken and how many failed, as py-spy says at its end."""
    found = _COUNTS.search(output)
    return None if found is None else (int(found[1]), int(found[2]))


def refusal(output: str, *, command: bool) -> NoStacks:
    """What py-spy's last words mean, for a recording without stacks. `command`: the process was started by us."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith("Error")), lines[-1] if lines else "it printed nothing")
    if _RIGHTS.search(output):
        return NoStacks(kind="refused", text="py-spy may not look at the process (ptrace)", next=_RIGHTS_NEXT)
    if re.search(r"python version|find.*python|_PyRuntime|interpreter", output, re.IGNORECASE):
        way = "name the Python process itself: `-- python train.py`, or --pid of a worker"
        return NoStacks(kind="not-supported", text=f"no Python was found in the process: {said[:200]}", next=way)
    way = "let it run for a second or more" if command else "check that the process runs, and try again"
    return NoStacks(kind="failed", text=f"py-spy ended without stacks: {said[:200]}", next=way)
