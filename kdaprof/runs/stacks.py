"""What is known of a recording of host stacks beside the stacks: of which process, how, with which errors.

Between the instrument that records and the analysis that reads; the files of a recording are named here, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from kdaprof.runs.util_file import IntArray
from kdaprof.runs.watch import WrappedCommand

STACKS_KIND = "stacks"
STACKS_FILE = "stacks.json"
SPEEDSCOPE_FILE = "stacks.speedscope.json"
FLAME_FILE = "stacks.svg"
TRACE_FILE = "stacks.chrometrace.json.gz"
THREADS_FILE = "stacks_threads.parquet"
HOLDS_FILE = "stacks_holds.parquet"
STACKS_FILES = (STACKS_FILE, SPEEDSCOPE_FILE, FLAME_FILE, TRACE_FILE, THREADS_FILE, HOLDS_FILE)
"""What a recording leaves beside its report; stops only with native stacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTicks:
    """What the kernel counted for one thread: at `t_ns` (monotonic, rising) the times since the thread's start.

    `run_ns` on a core, `delay_ns` ready and without one; the rest of the time it waited for something else.
    """

    tid: int
    name: str
    t_ns: IntArray
    run_ns: IntArray
    delay_ns: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """When py-spy held the process for native stacks: from `start_ns` to `end_ns` (monotonic), in order, apart.

    `looks`: how often the process was looked at.
    `unseen_ns`: time between looks so far apart that a stop could hide there; None in recordings of before.
    """

    start_ns: IntArray
    end_ns: IntArray
    looks: int
    unseen_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoStacks:
    """Why there are no stacks, and what to do about it. `kind`: refused (no rights), failed, not-supported."""

    kind: str
    text: str
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksRecord:
    """One recording. `anchor_ns` is the monotonic time of the trace's 0, known to within `anchor_uncertainty_ns`.

    `spy_cpu_ns` and `own_cpu_ns` are the CPU times of py-spy and of kdaprof meanwhile. Of a trace that was recorded
    elsewhere rate and start are not known (None), and its own 0 is the time's.
    """

    tool: str
    command: tuple[str, ...]
    complete: bool
    pid: int | None
    rate_hz: int | None
    native: bool
    started_unix_ns: int | None
    started_monotonic_ns: int
    ended_monotonic_ns: int
    anchor_ns: int | None
    anchor_uncertainty_ns: int | None
    samples: int | None
    errors: int | None
    spy_cpu_ns: int | None
    own_cpu_ns: int
    missing: NoStacks | None = None
    child: WrappedCommand | None = None
    notes: tuple[str, ...] = ()

    @property
    def span_ns(self) -> int:
        """From the start of the recording to its end."""
        return self.ended_monotonic_ns - self.started_monotonic_ns
