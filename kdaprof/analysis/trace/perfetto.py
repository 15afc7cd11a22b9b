"""Writes the gaps of each device, by class, as extra tracks into a copy of a trace: it opens in Perfetto as before,
with the idle above the kernels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from kdaprof.analysis.trace.context import device_view, make_context
from kdaprof.analysis.trace.idle import CLASSES, Cause
from kdaprof.runs.atomic import write_with
from kdaprof.timeline.chunks import Chunks
from kdaprof.timeline.columns import Timeline

_TRACK_PID = 1_000_000
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_HEAD_LIMIT = 64 << 20
_SHORTEST_NS = 1


def write_perfetto(timeline: Timeline, original: Path, target: Path) -> int:
    """Write the copy with the extra tracks to `target`; returns the number of gaps on them.

    A trace of another form than Kineto JSON gives the extra tracks alone, on the same clock. Raises
    `kdaprof.runs.atomic.TargetError` when the target cannot be written.
    """
    events = list(_events(timeline))
    gaps = sum(event["ph"] == "X" for event in events)
    text = ",\n  ".join(json.dumps(event, ensure_ascii=False) for event in events).encode()
    # Exact decimals instead of floats: the marks become numbers.
    text = re.sub(rb'"@(-?\d+\.\d{3})"', rb"\1", text)
    write_with(target, lambda temporary: _write(temporary, timeline, original, text))
    return gaps


def _events(timeline: Timeline) -> Iterator[dict[str, object]]:
    context = make_context(timeline)
    for device in timeline.devices():
        pid = _TRACK_PID + device
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": f"idle of GPU {device}"}}
        yield {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": "kdaprof"}}
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": 0, "args": {"name": "gaps by class"}}
        gaps = device_view(context, device).gaps
        largest = gaps.classes.argmax(axis=0).tolist()
        for gap, (start, end) in enumerate(zip(gaps.start_ns.tolist(), gaps.end_ns.tolist(), strict=True)):
            if end - start < _SHORTEST_NS:
                continue
            parts = gaps.classes[:, gap].tolist()
            yield {
                "ph": "X",
                "cat": "kdaprof_idle",
                "name": CLASSES[largest[gap]],
                "pid": pid,
                "tid": 0,
                "ts": _micros(start),
                "dur": _micros(end - start),
                "args": {
                    "cause": Cause(int(gaps.cause[gap])).name.lower(),
                    **{f"{name}_ns": value for name, value in zip(CLASSES, parts, strict=True) if value},
                },
            }


def _micros(ns: int) -> str:
    """A mark that becomes a number of microseconds with three decimals."""
    sign = "-" if ns < 0 else ""
    return f"@{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def _write(target: Path, timeline: Timeline, original: Path, events: bytes) -> None:
    with target.open("wb") as out:
        if timeline.source.format != "kineto" or not _copy_with(original, events, out):
            out.seek(0)
            out.truncate()
            base = timeline.source.base_ns
            head = f'{{"baseTimeNanoseconds": {base}, ' if base is not None else "{"
            out.write(head.encode() + b'"traceEvents": [\n  ' + events + b"\n]}\n")


def _copy_with(original: Path, events: bytes, out: object) -> bool:
    """Copy the original with `events` put first in its list; False when the list cannot be found."""
    write = out.write  # type: ignore[attr-defined]
    head = b""
    start: int | None = None
    for piece in Chunks(original):
        if start is not None:
            write(piece)
            continue
        head += piece
        match = _EVENTS_KEY.search(head)
        bare = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
        if match or bare:
            start = match.end() if match and not bare else head.index(b"[") + 1
            write(head[:start] + b"\n  " + events + (b",\n" if events else b"") + head[start:])
        elif len(head) > _HEAD_LIMIT:
            return False
    return start is not None
