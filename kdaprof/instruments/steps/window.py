"""Profiled windows: every so many steps, Kineto records a few of them whole. Importing it imports torch.

The device is waited for before a window and at its end, and nowhere else: so all that a window's steps launched is in
it, and nothing of the steps before. A window that fails is a note; the loop goes on without windows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol

from torch.profiler import ProfilerActivity
from torch.profiler.profiler import _KinetoProfile

from kdaprof.errors import UsageError
from kdaprof.instruments.clock import Clock, ClockPair, clock_pair
from kdaprof.instruments.cupti import conflict
from kdaprof.instruments.device import Device
from kdaprof.instruments.steps.recorder import UNPROFILED
from kdaprof.instruments.steps.spans import StepSpans
from kdaprof.instruments.tracefile import rewrite_trace
from kdaprof.timeline import kineto as reader
from kdaprof.timeline.columns import Timeline
from kdaprof.timeline.loop_ranges import PHASE_RANGE, STEP_RANGE

Kind = Literal["profiled-cuda", "profiled-full"]


class Profiler(Protocol):
    """Records the process from `start` to `stop`; the recording can then be written once."""

    def start(self) -> None:
        """Attach and record."""
        ...

    def stop(self) -> None:
        """Record no more."""
        ...

    def export(self, path: Path) -> None:
        """Write the Chrome trace (JSON)."""
        ...


class KinetoProfiler:
    """torch's profiler: device activity alone, or CPU operators as well."""

    def __init__(self, kind: Kind, device: Device) -> None:
        activities = [ProfilerActivity.CUDA] if device.kind == "cuda" else []
        if kind == "profiled-full":
            activities.append(ProfilerActivity.CPU)
        # acc_events: without it torch warns that a second recording clears the first one's events.
        self._profiler = _KinetoProfile(activities=activities, acc_events=True)

    def start(self) -> None:
        """Attach and record."""
        self._profiler.start()

    def stop(self) -> None:
        """Record no more."""
        self._profiler.stop()

    def export(self, path: Path) -> None:
        """Write the Chrome trace (JSON)."""
        self._profiler.export_chrome_trace(str(path))


class MakeProfiler(Protocol):
    """Makes the profiler of one window."""

    def __call__(self, kind: Kind, device: Device) -> Profiler:
        """A profiler that records nothing yet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan:
    """Windows of `steps` steps, the first before step `first`, then one every `every` steps, `most` in all.

    On a GPU they take turns: CUDA activity alone (busy time, least disturbed), then CPU operators too (idle classes).
    """

    first: int = 30
    every: int = 500
    steps: int = 2
    most: int = 10

    def __post_init__(self) -> None:
        if min(self.first, self.most) < 0 or self.steps < 1 or self.every <= self.steps:
            raise UsageError(f"{self}: needs first and most of 0 or more, steps of 1 or more, every larger than steps")

    def begins(self, number: int) -> bool:
        """Whether a window begins before this step."""
        place, rest = divmod(number - self.first, self.every)
        return rest == 0 and 0 <= place < self.most

    def kind(self, number: int, device: Device) -> Kind:
        """What the window before this step records."""
        odd = (number - self.first) // self.every % 2
        return "profiled-full" if odd or device.kind != "cuda" else "profiled-cuda"


@dataclass(frozen=True, slots=True)
class RecordedWindow:
    """One window as it was recorded: its first step, how many, and the profiler that still holds its events."""

    first: int
    steps: int
    kind: Kind
    profiler: Profiler
    pair: ClockPair


class KinetoWindows:
    """The windows of a loop. `recorded` is the window that waits for its export; `note` says why there are none."""

    def __init__(self, plan: WindowPlan, device: Device, clock: Clock, *, make: MakeProfiler = KinetoProfiler) -> None:
        self._plan, self._device, self._clock, self._make = plan, device, clock, make
        self._open: RecordedWindow | None = None
        self.recorded: RecordedWindow | None = None
        self.note: str | None = None

    def before(self, number: int) -> str:
        """Begin a window where the plan says so; the kind of the open one, or `unprofiled`."""
        if self._open is None and self.note is None and self.recorded is None and self._plan.begins(number):
            self._begin(number)
        return UNPROFILED if self._open is None else self._open.kind

    def after(self, number: int) -> None:
        """End the window after its last step."""
        window = self._open
        if window is not None and number >= window.first + window.steps - 1:
            self._open = None
            if self._stopped(window):
                self.recorded = window

    def abort(self) -> None:
        """End the window now; nothing of it is kept."""
        window, self._open = self._open, None
        if window is not None:
            self._stopped(window)

    def take(self) -> RecordedWindow | None:
        """The window that waits for its export, once."""
        window, self.recorded = self.recorded, None
        return window

    def _begin(self, number: int) -> None:
        kind = self._plan.kind(number, self._device)
        holder = conflict(uses_cupti=self._device.kind == "cuda")
        if holder is not None:
            self.note = f"no profiled windows: {holder}"
            return
        try:
            profiler = self._make(kind, self._device)
            self._device.synchronize()
            pair = clock_pair(self._clock)
            profiler.start()
        except Exception as error:  # whatever a profiler does, training goes on
            self.note = f"no profiled windows: the profiler did not start ({type(error).__name__}: {error})"
            return
        self._open = RecordedWindow(number, self._plan.steps, kind, profiler, pair)

    def _stopped(self, window: RecordedWindow) -> bool:
        try:
            self._device.synchronize()
            window.profiler.stop()
        except Exception as error:
            self.note = f"no more profiled windows: the profiler did not stop ({type(error).__name__}: {error})"
            return False
        return True


def timeline_of(window: RecordedWindow, steps: Sequence[StepSpans]) -> Timeline:
    """The window's events with its steps (`ProfilerStep#7`) and phases (`phase fwd`) as ranges.

    Errors: BadFileError when the profiler wrote nothing usable; TargetError when there is no room for its file.
    """
    ranges: list[tuple[str, int, int]] = []
    for step in steps:
        ranges.append((f"{STEP_RANGE}{step.number}", window.pair.to_unix_ns(step.t_ns), step.wall_ns))
        ranges += [
            (f"{PHASE_RANGE}{e.name}", window.pair.to_unix_ns(e.start_ns), e.end_ns - e.start_ns) for e in step.entries
        ]
    with TemporaryDirectory(prefix="kdaprof-window-") as folder:
        raw, whole = Path(folder) / "raw.json", Path(folder) / "trace.json"
        window.profiler.export(raw)
        rewrite_trace(raw, whole, ranges, pid=os.getpid(), tid=threading.get_native_id())
        return reader.read(whole)
