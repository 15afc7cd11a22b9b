"""Q08: a time that is not the device's shown as if it were."""

from __future__ import annotations

from kdaprof.analysis.guards.families import TIMED
from kdaprof.analysis.guards.rule import GuardRule
from kdaprof.analysis.view import CellView
from kdaprof.runs.facts import Fact

# Host times; a device figure that has one of these for its source is a launch time in disguise.
_HOST_CLOCK = frozenset({"wall_ns", "host_ns", "pipelined_ns"})


def names_of(sources: tuple[str, ...]) -> frozenset[str]:
    """The figures' names at the end of fact ids."""
    return frozenset(source.rsplit("/", 1)[-1] for source in sources)


def _not_device_time(view: CellView, name: str, fact: Fact) -> str | None:
    seen = view.cell.observed
    if seen is None or seen.interpreted:
        return "time of Triton's interpreter, which runs each program in Python: not speed"
    if seen.device == "cpu":
        return "time on the CPU of code made for a GPU: not speed"
    disguised = _DISGUISES.get(name)
    return disguised(view, names_of(fact.sources)) if disguised else None


def _busy(view: CellView, sources: frozenset[str]) -> str | None:
    host = sorted(sources & _HOST_CLOCK)
    if host:
        return f"made from {', '.join(host)}: the time to issue an asynchronous call is not the device's work"
    recorded = view.kernels or (view.cell.observed is not None and view.cell.observed.profiled)
    return None if recorded else "no device event was recorded for this cell"


def _span(view: CellView, sources: frozenset[str]) -> str | None:
    seen = view.cell.observed
    taken = view.steady() if seen is not None and seen.borders == "loop" else view.of("events")
    recorded = any(sample.gpu_span_ns is not None for sample in taken)
    return None if recorded else "no device event was recorded around the call"


def _share(view: CellView, sources: frozenset[str]) -> str | None:
    if not sources or "gpu_busy_ns" in sources:
        return None
    return f"compares the floor with {', '.join(sorted(sources - {'floor_ns'}))}, which is no device time"


_DISGUISES = {"gpu_busy_ns": _busy, "gpu_span_ns": _span, "floor_share": _share}

NOT_DEVICE_TIME = GuardRule(
    id="Q08",
    title="not a device time",
    explanation=(
        "The time to launch an asynchronous call given as kernel time, or the time of an interpreter or a CPU given "
        "as speed."
    ),
    touches=TIMED,
    judge=_not_device_time,
)
