"""Profiled repeats: torch.profiler around calls with known borders, exported once. Importing it imports torch.

Mode `cuda` records device activity and runtime calls only; mode `full` records CPU operators as well. Both slow the
host, so the walls returned here are profiled walls: they give the inflation, never the wall of a call.

Borders: each repeat is a range `kdaprof.repeat#<i>`, from before the call to the return of the synchronise after
it. The ranges are written into the exported file from host times: Kineto's timestamps are unix time
(`baseTimeNanoseconds` + ts), and a clock pair is taken before each repeat. torch's own `record_function` is not
used: it records nothing in mode `cuda`, and in mode `full` its first entry takes 0.7 ms between border and call.
The same borders stand, in integer ns, in the file's top-level key `kdaprof`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from torch.profiler import ProfilerActivity
from torch.profiler.profiler import _KinetoProfile

from kdaprof.errors import UnavailableError, UsageError
from kdaprof.instruments.clock import Clock, ClockPair, clock_pair
from kdaprof.instruments.cupti import conflict
from kdaprof.instruments.device import Device
from kdaprof.instruments.timing import garbage_collection_off
from kdaprof.instruments.tracefile import TraceContents, rewrite_trace

ProfileMode = Literal["cuda", "full"]
REPEAT_PREFIX = "kdaprof.repeat#"


@dataclass(frozen=True, slots=True)
class InnerRange:
    """A named part of a repeat, from and to in monotonic ns."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class ProfiledRepeat:
    """One profiled call. Times as in `CallTiming`, all under the profiler; `unix_ns` is its start in trace time."""

    index: int
    t_ns: int
    unix_ns: int
    host_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class KinetoRecording:
    """The exported trace and its borders. `pairs` join monotonic and unix time at the start and at the end."""

    path: Path
    mode: ProfileMode
    repeats: tuple[ProfiledRepeat, ...]
    warmup: int
    pairs: tuple[ClockPair, ClockPair]
    contents: TraceContents
    missing: str | None


def record(
    fn: Callable[[], object],
    repeats: int,
    *,
    mode: ProfileMode,
    device: Device,
    clock: Clock,
    out_path: Path,
    warmup: int = 2,
    stage: Callable[[int], None] | None = None,
    inner: Callable[[], Sequence[InnerRange]] | None = None,
) -> KinetoRecording:
    """Run `fn` `warmup` times with the profiler attached but not recording, then `repeats` times recorded.

    `out_path` (`.json` or `.json.gz`) is replaced atomically. `stage(i)` is called, unrecorded by the borders,
    before recorded repeat i: for rotating inputs and resetting gradients. `inner()` is asked after each repeat for
    the ranges inside it, which are written into the trace beside the repeat's own. A trace that holds no device event
    on a CUDA device comes back with `missing` set: another profiler may hold CUPTI.

    Errors: UsageError for `repeats` < 1 or mode `cuda` without a CUDA device; UnavailableError when another
    profiler is seen before the run; whatever `fn` raises, with the profiler stopped.
    """
    if repeats < 1:
        raise UsageError(f"a recording needs at least one repeat, not {repeats}")
    if mode == "cuda" and device.kind != "cuda":
        raise UsageError("mode cuda records device activity, and this device is the CPU: use mode full")
    if (holder := conflict(uses_cupti=device.kind == "cuda")) is not None:
        raise UnavailableError(holder)

    # acc_events: without it torch warns that a second recording clears the first one's events.
    profiler = _KinetoProfile(activities=_activities(mode, device), acc_events=True)
    first = clock_pair(clock)
    with garbage_collection_off(), _attached(profiler) as start_recording:
        for index in range(warmup):
            if stage is not None:
                stage(index)
            fn()
        device.synchronize()
        start_recording()
        done = []
        inside: list[tuple[str, int, int]] = []
        for index in range(repeats):
            repeat = _repeat(fn, index, device, clock, stage)
            done.append(repeat)
            to_unix = repeat.unix_ns - repeat.t_ns
            parts = inner() if inner is not None else ()
            inside += [(part.name, part.start_ns + to_unix, part.end_ns - part.start_ns) for part in parts]
        last = clock_pair(clock)
        # Kineto takes the file's own keys only while it records.
        profiler.add_metadata_json("kdaprof", _borders(mode, tuple(done), (first, last)))
    contents = _export(profiler, done, inside, out_path)
    return KinetoRecording(
        path=out_path,
        mode=mode,
        repeats=tuple(done),
        warmup=warmup,
        pairs=(first, last),
        contents=contents,
        missing=_why_empty(contents, device),
    )


@contextmanager
def _attached(profiler: _KinetoProfile) -> Iterator[Callable[[], None]]:
    """Attach, so that what runs before the yielded function is called is watched but not recorded.

    CUPTI's first activity is slow to start: that falls into the warm-up. Detached again whatever happens; a
    profiler that was prepared but never started cannot be stopped, so a failed warm-up starts it first.
    """
    profiler.prepare_trace()
    started = False

    def start() -> None:
        nonlocal started
        profiler.start_trace()
        started = True

    try:
        yield start
    finally:
        if not started:
            profiler.start_trace()
        profiler.stop_trace()


def _activities(mode: ProfileMode, device: Device) -> list[ProfilerActivity]:
    wanted = [ProfilerActivity.CUDA] if device.kind == "cuda" else []
    return [ProfilerActivity.CPU, *wanted] if mode == "full" else wanted


def _repeat(
    fn: Callable[[], object],
    index: int,
    device: Device,
    clock: Clock,
    stage: Callable[[int], None] | None,
) -> ProfiledRepeat:
    if stage is not None:
        stage(index)
    device.synchronize()
    pair = clock_pair(clock)
    start = clock.now_ns()
    kept = fn()
    issued = clock.now_ns()
    device.synchronize()
    done = clock.now_ns()
    del kept
    return ProfiledRepeat(index, start, pair.to_unix_ns(start), issued - start, done - start)


def _borders(mode: ProfileMode, repeats: tuple[ProfiledRepeat, ...], pairs: tuple[ClockPair, ...]) -> str:
    return json.dumps({"mode": mode, "repeats": [asdict(r) for r in repeats], "pairs": [asdict(p) for p in pairs]})


def _export(
    profiler: _KinetoProfile,
    repeats: Sequence[ProfiledRepeat],
    inside: Sequence[tuple[str, int, int]],
    out_path: Path,
) -> TraceContents:
    out_path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out_path.parent, prefix=".kdaprof-trace-") as folder:
        raw = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(raw))
        return rewrite_trace(
            raw,
            out_path,
            [*((f"{REPEAT_PREFIX}{r.index}", r.unix_ns, r.wall_ns) for r in repeats), *inside],
            pid=os.getpid(),
            tid=threading.get_native_id(),
        )


def _why_empty(contents: TraceContents, device: Device) -> str | None:
    if device.kind != "cuda" or contents.device_events > 0:
        return None
    return (
        "the profiler recorded no device event: another profiler may hold CUPTI (nsys, ncu, a second torch.profiler), "
        f"or the call launched nothing on {device.traits.name}"
    )
