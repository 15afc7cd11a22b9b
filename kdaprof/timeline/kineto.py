"""Reads torch.profiler (Kineto) traces: JSON, plain or gzip, intact or damaged, of any size.

The file is taken in slices cut at event borders and decoded into columns; memory grows with the columns, not
with the text. What the fast way cannot decode is split exactly, and event by event read by tolerant rules.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kdaprof.errors import BadFileError
from kdaprof.timeline.build import Builder
from kdaprof.timeline.chunks import CHUNK_BYTES, Chunks
from kdaprof.timeline.columns import Device, Timeline
from kdaprof.timeline.kineto_events import EventDecoder, add_lenient
from kdaprof.timeline.lenient import LenientError, TruncatedError, parse
from kdaprof.timeline.structure import find_elements

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_ODD_KEYS = re.compile(rb"^[\s\[{]*(?:'|[A-Za-z_])")
_BORDER = re.compile(rb'\}(\s*,\s*)\{(\s*"[^"\\]*")')
_LONGEST_HEAD = 64 << 20
_LONGEST_EVENT = 64 << 20


def read(path: Path, *, chunk_bytes: int = CHUNK_BYTES) -> Timeline:
    """Read a Kineto trace.

    Times are exact integer nanoseconds. Raises `BadFileError` (file, place, reason) when nothing can be used:
    empty, not a trace, no events. Lesser faults are in `Timeline.source` (complete, counts, notes).
    """
    with _paused_gc():
        return _Reader(path, chunk_bytes).read()


@contextmanager
def _paused_gc() -> Iterator[None]:
    """Nothing decoded here has cycles; collecting would double the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Reader:
    def __init__(self, path: Path, chunk_bytes: int) -> None:
        self.path = path
        self.chunks = Chunks(path, chunk_bytes)
        self.builder = Builder()
        self.events = EventDecoder(self.builder)
        self.notes: list[str] = []
        self.meta: dict[str, Any] = {}
        self.complete = True
        self.elements = 0

    def read(self) -> Timeline:
        pieces = iter(self.chunks)
        head = bytearray()
        start = None
        for piece in pieces:
            head += piece
            start = self._events_start(head)
            if start is not None or len(head) > _LONGEST_HEAD:
                break
        text = bytes(head.removeprefix(b"\xef\xbb\xbf"))
        if not text.strip():
            raise BadFileError(f"{self.path}: {self.chunks.problem or 'the file is empty'}")
        if start is None:
            self._read_leniently(text + b"".join(pieces))
        else:
            self._head(bytes(head[:start]))
            self._read_array(bytes(head[start:]), pieces)
        return self._finish()

    def _events_start(self, head: bytearray) -> int | None:
        """Offset behind the bracket that opens the events; None: not there yet, or only by tolerant rules."""
        begin = 3 if head.startswith(b"\xef\xbb\xbf") else 0
        stripped = head[begin:].lstrip()
        if _ODD_KEYS.match(stripped):
            return None
        if stripped.startswith(b"["):
            return head.index(b"[") + 1
        match = _EVENTS_KEY.search(head)
        return match.end() if match else None

    def _read_array(self, text: bytes, pieces: Iterator[bytes]) -> None:
        border = _border(text)
        rest = text
        while True:
            piece = next(pieces, None)
            cut = self._cut_fast(rest, border) if piece is not None else 0
            if cut == 0:  # the exact way: no border here, or it does not decode, or this is the last of the text
                elements = find_elements(rest)
                self._add_elements(rest, elements.spans)
                if elements.array_end is not None:
                    self._tail(rest[elements.array_end :] + (piece or b"") + b"".join(pieces))
                    return
                cut = elements.consumed
            rest = rest[cut:].lstrip(b" \t\r\n,") if cut else rest
            if piece is None:
                self._ended_early(rest)
                return
            if len(rest) > _LONGEST_EVENT:
                raise BadFileError(f"{self.path}: event {self.elements + 1} does not end within {len(rest)} bytes")
            rest += piece
            border = border or _border(rest)

    def _cut_fast(self, text: bytes, border: bytes | None) -> int:
        """Decode all up to the last border; the offset behind it, 0 when that did not work."""
        cut = text.rfind(border) if border else -1
        if cut < 0 or border is None:
            return 0
        close = cut + border.index(b"}") + 1
        return close if self._decoded(memoryview(text)[:close]) else 0

    def _decoded(self, events: bytes | memoryview) -> bool:
        before = self.builder.read
        try:
            self.events.add(b"".join((b"[", events, b"]")))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        self.elements += self.builder.read - before
        return True

    def _add_elements(self, text: bytes, spans: list[tuple[int, int]]) -> None:
        """Add whole events: all at once if they decode, else by halves, down to the one that does not."""
        if not spans:
            return
        if self._decoded(b",".join(text[begin:end] for begin, end in spans)):
            return
        if len(spans) > 1:
            middle = len(spans) // 2
            self._add_elements(text, spans[:middle])
            self._add_elements(text, spans[middle:])
            return
        begin, end = spans[0]
        self.elements += 1
        one = text[begin:end].decode("utf-8", errors="replace")
        try:
            record = _tolerant(one)
        except (LenientError, RecursionError):
            self.builder.dropped["unreadable"] += 1
            self._note_once(f"event {self.elements} cannot be read and is left out")
            return
        self._add_record(record)

    def _add_record(self, record: object) -> None:
        if add_lenient(self.builder, record):
            self.builder.repaired["text repaired"] += 1
        else:
            self.builder.dropped["not an event"] += 1

    def _ended_early(self, rest: bytes) -> None:
        self.complete = False
        reason = self.chunks.problem or "the file ends too early"
        self.notes.append(f"{reason}: read until event {self.elements}")
        if rest.strip():
            self.builder.dropped["cut off"] += 1

    def _head(self, text: bytes) -> None:
        if text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            self.notes.append("a bare list of events, without metadata")
            return
        self._take_meta(text + b"]}")

    def _tail(self, text: bytes) -> None:
        """What follows the events: `, "key": …}`, or nothing for a bare list."""
        stripped = text.strip()
        if stripped.startswith(b","):
            self._take_meta(b"{" + stripped[1:])
        elif stripped not in (b"}", b""):
            self.notes.append("unexpected text after the events, ignored")
        if self.chunks.problem:
            self.complete = False
            self.notes.append(self.chunks.problem)
        elif not stripped and "a bare list of events, without metadata" not in self.notes:
            self.notes.append("the file ends before its last bracket")

    def _take_meta(self, text: bytes) -> None:
        try:
            found = _tolerant(text.decode("utf-8", errors="replace"))
        except TruncatedError as error:
            self.notes.append("the metadata ends too early")
            found = error.partial
        except (LenientError, RecursionError):
            self.notes.append("the metadata cannot be read")
            return
        if isinstance(found, dict):
            self.meta.update(found)

    def _read_leniently(self, data: bytes) -> None:
        """The whole text by tolerant rules: unquoted keys, single quotes, no recognisable list of events."""
        text = data.decode("utf-8", errors="replace").lstrip("\ufeff")
        try:
            found, _ = parse(text)
        except TruncatedError as error:
            found = error.partial
            self.complete = False
            self.notes.append(self.chunks.problem or "the file ends too early")
        except (LenientError, RecursionError) as error:
            place = getattr(error, "offset", 0)
            raise BadFileError(f"{self.path}: character {place}: not JSON, and not repairable: {error}") from error
        if isinstance(found, dict):
            events = found.pop("traceEvents", None)
            self.meta = found
        else:
            events = found
        if not isinstance(events, list):
            raise BadFileError(f"{self.path}: no list of trace events (key traceEvents) in it")
        for record in events:
            self.elements += 1
            self._add_record(record)
        if events:
            self._note_once("not strict JSON: read by tolerant rules")

    def _note_once(self, text: str) -> None:
        if len(self.notes) < 20 and text not in self.notes:
            self.notes.append(text)

    def _finish(self) -> Timeline:
        if not self.elements:
            reason = "; ".join(self.notes) or "the list of events is empty"
            raise BadFileError(f"{self.path}: no events: {reason}")
        distributed = self.meta.get("distributedInfo")
        info = distributed if isinstance(distributed, dict) else {}
        return self.builder.finish(
            format_="kineto",
            path=str(self.path),
            base_ns=_integer(self.meta.get("baseTimeNanoseconds")),
            rank=_integer(info.get("rank")),
            world_size=_integer(info.get("world_size")),
            devices=_devices(self.meta.get("deviceProperties")),
            complete=self.complete,
            notes=self.notes,
        )


def _border(text: bytes) -> bytes | None:
    """The bytes between two events, learnt from the first two: `}`, separator, `{` and, on one line, a key.

    Whatever is cut there must still decode, so a wrong border costs time, not correctness.
    """
    first = find_elements(text[: 1 << 18]).spans[:2]
    if len(first) < 2:
        return None
    (_, end), (begin, _) = first
    separator = text[end:begin]
    if b"\n" in separator:
        line = text.rfind(b"\n", 0, end)
        indent = text[line : end - 1] if line >= 0 and not text[line : end - 1].strip() else b""
        return indent + b"}" + separator + b"{"
    match = _BORDER.match(text, end - 1)
    return match.group() if match else None


def _tolerant(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return parse(text)[0]


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _devices(found: object) -> tuple[Device, ...]:
    if not isinstance(found, list):
        return ()
    devices = []
    for entry in found:
        index = _integer(entry.get("id")) if isinstance(entry, dict) else None
        if index is not None:
            name = entry.get("name")
            devices.append(Device(index=index, name=name if isinstance(name, str) else None))
    return tuple(devices)
