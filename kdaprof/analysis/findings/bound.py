"""What bounds a call: the GPU, the host, a synchronise, the device's own waiting, or a mixture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kdaprof.analysis.findings.figures import quoted
from kdaprof.runs.facts import Fact

Kind = Literal["gpu", "host", "sync", "device_wait", "mixed", "idle", "unknown"]

# A call whose idle is below this is bound by the GPU.
GPU_IDLE_MAX = 0.15
# A cause must hold this much of the idle to be named for it.
CAUSE_SHARE_MIN = 0.50
# More idle than this without a launch record, and nothing can be said of its causes.
UNRECORDED_SHARE_MAX = 0.20

HOST_CLASSES = ("dispatch", "host_other", "launch_call", "allocator", "jit")
WAIT_CLASSES = ("launch_latency", "device_wait", "graph_gap")
_ALL_CLASSES = (*HOST_CLASSES, *WAIT_CLASSES, "sync", "no_launch_record", "unclassified", "drain")


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
    if share < GPU_IDLE_MAX:
        return Bound(kind="gpu", share=share, classes=classes)
    if idle <= 0 or not any(classes.values()):
        return Bound(kind="idle", share=share, classes={})
    drained = quoted(facts, "drained_by_sync_ns") or 0.0
    kind: Kind = "mixed"
    if classes.get("no_launch_record", 0.0) > UNRECORDED_SHARE_MAX * idle:
        kind = "unknown"
    elif drained >= CAUSE_SHARE_MIN * idle:
        kind = "sync"
    elif _sum(classes, HOST_CLASSES) >= CAUSE_SHARE_MIN * idle:
        kind = "host"
    elif _sum(classes, WAIT_CLASSES) >= CAUSE_SHARE_MIN * idle:
        kind = "device_wait"
    return Bound(kind=kind, share=share, classes=classes)


def _sum(classes: Mapping[str, float], names: tuple[str, ...]) -> float:
    return sum(classes.get(name, 0.0) for name in names)
