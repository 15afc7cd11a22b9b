"""What the parent and the worker of a target say to each other: one line of JSON each way."""

from __future__ import annotations

import msgspec


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The first line to a worker: what to build, where, and how often to run it before it is ready."""

    target: str
    device: str
    warmup: int


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Time `samples` calls."""

    samples: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says: walls in ns, one a call (of the warm-up, the first time), peak bytes; or what went wrong."""

    wall_ns: tuple[int, ...] = ()
    peak_bytes: int | None = None
    peak_missing: str | None = None
    error: str | None = None
