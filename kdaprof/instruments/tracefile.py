"""The exported Chrome trace, copied once: counted, completed with our ranges, compressed, replaced atomically.

Works on the text by lines or chunks and never holds the file: a trace may have gigabytes.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kdaprof.runs.atomic import write_with

_CHUNK = 4 << 20
_OVERLAP = 512
_FOOT = 8192
_BASE = re.compile(rb'"baseTimeNanoseconds":\s*(\d+)')
_EVENTS = re.compile(rb'"traceEvents":\s*\[')
_DEVICE = re.compile(rb'"cat":\s*"(?:kernel|gpu_memcpy|gpu_memset)"')
_RUNTIME = re.compile(rb'"cat":\s*"(?:cuda_runtime|cuda_driver)"')
_TRACE_NAME = re.compile(rb'"traceName":\s*"[^"]*"')
_HOST_NAME = re.compile(rb'"host_name":\s*"[^"]*",?')


@dataclass(frozen=True, slots=True)
class TraceContents:
    """What is in the file: device events, runtime and driver calls, and its base time.

    `base_unix_ns` + ts (in µs, × 1000) is unix time.
    """

    device_events: int
    runtime_calls: int
    base_unix_ns: int | None


def rewrite_trace(
    raw: Path, out_path: Path, ranges: Sequence[tuple[str, int, int]], *, pid: int, tid: int
) -> TraceContents:
    """Copy `raw` to `out_path` (compressed when it ends in `.gz`), without the host's name and its own path.

    `ranges` are (name, unix ns, duration ns); they are added as `user_annotation` events of thread `tid`.
    Errors: TargetError when the target cannot be written.
    """
    counts = {"device": 0, "runtime": 0}
    base: int | None = None
    for chunk, fresh in _chunks(raw):
        counts["device"] += sum(1 for m in _DEVICE.finditer(chunk) if m.end() > fresh)
        counts["runtime"] += sum(1 for m in _RUNTIME.finditer(chunk) if m.end() > fresh)
        if base is None and (match := _BASE.search(chunk)):
            base = int(match[1])
    events = _range_events(ranges, base or 0, pid, tid)
    write_with(out_path, lambda temporary: _write(raw, temporary, events, pack=out_path.suffix == ".gz"))
    return TraceContents(counts["device"], counts["runtime"], base)


def _write(raw: Path, temporary: Path, events: list[bytes], *, pack: bool) -> None:
    with temporary.open("wb") as target:
        if not pack:
            _copy(raw, target, events)
            return
        # mtime 0 and no name: the same trace gives the same bytes.
        with gzip.GzipFile(filename="", fileobj=target, mode="wb", compresslevel=5, mtime=0) as packed:
            _copy(raw, packed, events)


def _chunks(path: Path) -> Iterator[tuple[bytes, int]]:
    """Pieces that overlap, so that no match is cut; with the offset up to which a piece was seen before."""
    tail = b""
    with path.open("rb") as source:
        while block := source.read(_CHUNK):
            chunk = tail + block
            yield chunk, len(tail)
            tail = chunk[-_OVERLAP:]


def _range_events(ranges: Sequence[tuple[str, int, int]], base: int, pid: int, tid: int) -> list[bytes]:
    """One event a range, laid out as Kineto does, so that a reader that cuts at its borders cuts here too."""
    events = []
    for name, unix_ns, duration_ns in ranges:
        head = json.dumps({"ph": "X", "cat": "user_annotation", "name": name, "pid": pid, "tid": tid})
        # Integer arithmetic: µs with three decimals, since a double would lose nanoseconds.
        times = f'"ts": {_microseconds(unix_ns - base)}, "dur": {_microseconds(duration_ns)}'
        events.append(f"  {{\n    {head[1:-1]}, {times}\n  }}".encode())
    return events


def _microseconds(nanoseconds: int) -> str:
    sign = "-" if nanoseconds < 0 else ""
    whole, rest = divmod(abs(nanoseconds), 1000)
    return f"{sign}{whole}.{rest:03d}"


def _copy(raw: Path, target: IO[bytes] | gzip.GzipFile, events: list[bytes]) -> None:
    with raw.open("rb") as source:
        head = source.read(_CHUNK)
        start = _EVENTS.search(head)
        cut = start.end() if start else 0
        # The host's name stands in Kineto's header, and nobody needs it to read the trace.
        target.write(_HOST_NAME.sub(b"", head[:cut]))
        if start and events:
            empty = head[cut:].lstrip().startswith(b"]")
            target.write(b"\n" + b",\n".join(events) + (b"" if empty else b","))
        # The file's own path stands in its last line: hold back enough to take it out whole.
        kept = head[cut:]
        while block := source.read(_CHUNK):
            target.write(kept[:-_FOOT])
            kept = kept[-_FOOT:] + block
        target.write(kept[:-_FOOT])
        target.write(_TRACE_NAME.sub(b'"traceName": ""', kept[-_FOOT:]))
