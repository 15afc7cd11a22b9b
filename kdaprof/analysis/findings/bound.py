"""What bounds a cell's call, from its figures: the thresholds are those by which a trace is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kdaprof.analysis.findings.figures import quoted
from kdaprof.analysis.trace.bound import (
    DEVICE_CLASSES,
    HOST_CLASSES,
    IDLE_SHARE_GPU,
    NO_RECORD_SHARE_UNKNOWN,
    SHARE_OF_IDLE,
)
from kdaprof.runs.facts import Fact

Kind = Literal["gpu", "host", "sync", "device_wait", "mixed", "idle", "unknown"]

_ALL_CLASSES = (*HOST_CLASSES, *DEVICE_CLASSES, "sync", "no_launch_record", "unclassified", "drain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The kind, the idle's share of the call, and the classes of idle in ns by name (empty when not classified).

    `idle`: the GPU waits, but the idle was not classified, so that nothing names what it waits for. `unknown`: the
    share itself is missing or refused, or too much of the idle has no launch record.
    """

    kind: Kind
    share: float | None
    classes: Mapping[str, float]

    def largest(self) -> tuple[str, float] | None:
        """The class with most idle, and its ns."""
        if not self.classes:
            return None
        name = max(sorted(self.classes), key=self.classes.__getitem__)
        return name, self.classes[name]


def bound_of(facts: Mapping[str, Fact]) -> Bound:
    """Judge an eager cell by its quotable figures alone.

    Shares of causes are of the whole idle. `sync` is judged by `drained_by_sync_ns`: idle of gaps in which the
    launching thread had waited for the device, whatever it did afterwards.
    """
    share, idle = quoted(facts, "host_bound"), quoted(facts, "idle_ns")
    if share is None or idle is None:
        return Bound(kind="unknown", share=None, classes={})
    classes = {name: value for name in _ALL_CLASSES if (value := quoted(facts, f"idle_{name}_ns")) is not None}
    if share < IDLE_SHARE_GPU:
        return Bound(kind="gpu", share=share, classes=classes)
    if idle <= 0 or not any(classes.values()):
        return Bound(kind="idle", share=share, classes={})
    drained = quoted(facts, "drained_by_sync_ns") or 0.0
    kind: Kind = "mixed"
    if classes.get("no_launch_record", 0.0) > NO_RECORD_SHARE_UNKNOWN * idle:
        kind = "unknown"
    elif drained >= SHARE_OF_IDLE * idle:
        kind = "sync"
    elif _sum(classes, HOST_CLASSES) >= SHARE_OF_IDLE * idle:
        kind = "host"
    elif _sum(classes, DEVICE_CLASSES) >= SHARE_OF_IDLE * idle:
        kind = "device_wait"
    return Bound(kind=kind, share=share, classes=classes)


def _sum(classes: Mapping[str, float], names: tuple[str, ...]) -> float:
    return sum(classes.get(name, 0.0) for name in names)
