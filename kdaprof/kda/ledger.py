"""The gate's books: calls and backward passes counted a path, and what a `record()` block saw.

Process-wide and locked, because autograd runs backward passes on a thread of its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kdaprof.kda.decision import PATHS, Decision, GateRecord, Phase


@dataclass(frozen=True, slots=True)
class PathCount:
    """Calls of one path: forward, and backward passes that really ran."""

    fwd: int
    bwd: int

    def __str__(self) -> str:
        return f"{self.fwd}/{self.bwd}" if self.fwd or self.bwd else "0"


@dataclass(frozen=True, slots=True)
class Counters:
    """A snapshot of all paths; `str()` is what a training log prints: `kda fused=12/12 tensor=0`."""

    paths: tuple[tuple[str, PathCount], ...]

    def __getitem__(self, path: str) -> PathCount:
        return dict(self.paths)[path]

    def __str__(self) -> str:
        shown = [f"{p}={n}" for p, n in self.paths if p in {"fused", "tensor"} or n.fwd or n.bwd]
        return " ".join(("kda", *shown))


class Tally:
    """How often one decision was carried out. Mutable, and touched under the ledger's lock alone."""

    __slots__ = ("bwd", "decision", "fwd", "traced")

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.fwd = self.bwd = self.traced = 0


@dataclass(frozen=True, slots=True)
class GateTally:
    """One decision and how often it was taken since the last reset."""

    decision: Decision
    fwd: int
    bwd: int
    traced: int
    """Times it was taken while tracing; a compiled region that runs again counts nothing."""


class Recording:
    """What the gate did, on any thread, while a `record()` block was open."""

    def __init__(self) -> None:
        self._records: list[GateRecord] = []

    @property
    def records(self) -> tuple[GateRecord, ...]:
        """The events in order."""
        return tuple(self._records)

    def paths(self, phase: Phase) -> tuple[str, ...]:
        """The distinct paths of that phase, in the order in which they first appeared."""
        return tuple(dict.fromkeys(r.path for r in self._records if r.phase == phase))


_lock = threading.Lock()
_tallies: dict[Decision, Tally] = {}
_unattributed: dict[str, int] = {}
_recordings: list[Recording] = []


def tally_of(decision: Decision) -> Tally:
    """The tally shared by all calls with this decision."""
    with _lock:
        return _tallies.setdefault(decision, Tally(decision))


def note_forward(tally: Tally) -> None:
    """A call goes down the tally's path."""
    with _lock:
        tally.fwd += 1
    if _recordings:
        _record("fwd", tally.decision.chosen, tally.decision)


def note_traced(tally: Tally) -> None:
    """A call was traced into a compiled region; no counter moves, now or when the region runs."""
    with _lock:
        tally.traced += 1
    if _recordings:
        _record("fwd", tally.decision.chosen, tally.decision)


def note_backward_of(tally: Tally) -> None:
    """The backward pass of one of the tally's calls runs now."""
    with _lock:
        tally.bwd += 1
    if _recordings:
        _record("bwd", tally.decision.chosen, tally.decision)


def note_backward(path: str) -> None:
    """A backward pass of `path` runs now, of a call that only the path itself knows."""
    with _lock:
        _unattributed[path] = _unattributed.get(path, 0) + 1
    if _recordings:
        _record("bwd", path, None)


def counters() -> Counters:
    """Calls so far, a path: `counters()["fused"].bwd`; as text `kda fused=12/12 tensor=0` (forward/backward).

    A recomputed forward (activation checkpointing) is a call like any other. Compiled regions and graph replays
    count nothing.
    """
    with _lock:
        fwd = dict.fromkeys(PATHS, 0)
        bwd = {path: _unattributed.get(path, 0) for path in PATHS}
        for tally in _tallies.values():
            path = tally.decision.chosen  # a peer, or what it handed the call to, appears once it was called
            fwd[path] = fwd.get(path, 0) + tally.fwd
            bwd[path] = bwd.get(path, 0) + tally.bwd
    return Counters(tuple((path, PathCount(fwd.get(path, 0), bwd.get(path, 0))) for path in {**fwd, **bwd}))


def reset_counters() -> None:
    """Start counting at zero; `gate_records()` is emptied as well. Open recordings keep what they have."""
    with _lock:
        _unattributed.clear()
        for tally in _tallies.values():
            tally.fwd = tally.bwd = tally.traced = 0


def gate_records() -> tuple[GateTally, ...]:
    """Every decision taken since the last reset, with its counts, in order of first appearance."""
    with _lock:
        return tuple(
            GateTally(t.decision, t.fwd, t.bwd, t.traced) for t in _tallies.values() if t.fwd or t.bwd or t.traced
        )


@contextlib.contextmanager
def record() -> Iterator[Recording]:
    """Collect every decision and backward pass made inside the block, on all threads; blocks may nest."""
    recording = Recording()
    with _lock:
        _recordings.append(recording)
    try:
        yield recording
    finally:
        with _lock:
            # By identity: two recordings that saw the same events are still two.
            _recordings[:] = [r for r in _recordings if r is not recording]


def _record(phase: Phase, path: str, decision: Decision | None) -> None:
    traced = decision is not None and decision.traced
    on_cuda = decision.device == "cuda" if decision is not None else torch.cuda.is_available()
    captured = on_cuda and not traced and torch.cuda.is_current_stream_capturing()
    event = GateRecord(phase, path, decision, traced, captured)
    with _lock:
        for recording in _recordings:
            recording._records.append(event)
