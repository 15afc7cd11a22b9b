"""py-spy's Chrome trace as stacks over time, a thread each.

py-spy writes an event where a stack differs from the one before: `B` for a frame that came, `E` for one that went,
in µs from its own start. Between two times the stack stands; a failed sample lets the last one go on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from kdaprof.errors import BadFileError

_THREAD = re.compile(r"thread \((\w+)\)(?:: (.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Frame:
    """A function of a stack, in Python or native code; `line` is 0 where there is none."""

    name: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """One stack, outermost frame first, from `start_ns` to `end_ns` (monotonic)."""

    start_ns: int
    end_ns: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class ThreadStacks:
    """A thread's stacks in order. `tid` is the kernel's number, None where py-spy did not know it."""

    tid: int | None
    name: str
    stretches: tuple[Stretch, ...]


class _Args(msgspec.Struct):
    filename: str = ""
    line: int | None = None


class _Event(msgspec.Struct):
    ph: str
    pid: int
    tid: int
    ts: int
    name: str = ""
    args: _Args = msgspec.field(default_factory=_Args)


def last_ns(trace: bytes) -> int | None:
    """The last time of the trace, from its own 0; None when it holds no stack or is broken."""
    try:
        events = _decode(trace)
    except msgspec.DecodeError:
        return None
    return max((event.ts for event in events if event.ph in "BE"), default=0) * 1000 or None


def has_native(trace: bytes) -> bool:
    """Whether the trace holds frames of native code. Errors: DecodeError of msgspec when it is broken."""
    return any(".so" in event.args.filename for event in _decode(trace))


def read_stacks(trace: bytes, anchor_ns: int) -> tuple[ThreadStacks, ...]:
    """The stacks of every thread; `anchor_ns` is the monotonic time of the trace's 0.

    Errors: BadFileError when it is no trace of py-spy.
    """
    try:
        events = _decode(trace)
    except msgspec.DecodeError as error:
        raise BadFileError(f"py-spy's trace cannot be read ({error}); record again") from error
    open_stacks: dict[tuple[int, int], list[Frame]] = {}
    since: dict[tuple[int, int], int] = {}
    done: dict[tuple[int, int], list[Stretch]] = {}
    for event in events:
        if event.ph not in ("B", "E"):
            continue
        key = (event.pid, event.tid)
        stack = open_stacks.setdefault(key, [])
        t_ns = anchor_ns + event.ts * 1000
        if stack and t_ns > since[key]:
            done.setdefault(key, []).append(Stretch(since[key], t_ns, tuple(stack)))
        since[key] = t_ns
        if event.ph == "B":
            stack.append(Frame(event.name, event.args.filename, event.args.line or 0))
        elif stack:
            stack.pop()
    threads = [_thread(stretches) for stretches in done.values()]
    return tuple(sorted(threads, key=lambda thread: (thread.tid is None, thread.tid or 0)))


def _decode(trace: bytes) -> list[_Event]:
    return msgspec.json.decode(trace, type=list[_Event])


def _thread(stretches: list[Stretch]) -> ThreadStacks:
    """The outermost frame names the thread, once Python knows its name; it is taken off."""
    found = [_THREAD.fullmatch(stretch.frames[0].name) for stretch in stretches]
    named = [match for match in found if match is not None]
    if len(named) < len(found):
        return ThreadStacks(None, "", tuple(stretches))
    tids = [int(match[1]) for match in named if match[1].isdecimal()]
    names = [match[2] for match in named if match[2]]
    bare = tuple(Stretch(s.start_ns, s.end_ns, s.frames[1:]) for s in stretches if len(s.frames) > 1)
    return ThreadStacks(tids[-1] if tids else None, names[-1] if names else "", bare)
