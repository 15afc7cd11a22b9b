"""Q03, Q04 and Q05: another job on the card, clocks that moved, a host with other work to do.

Paths are measured interleaved over the whole run, so that a disturbance seen at any moment of it may lie in any
figure: what the snapshots say holds for every cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kdaprof.analysis.guards.families import HOST_TIMED, TIMED
from kdaprof.analysis.guards.rule import GuardRule
from kdaprof.analysis.stats import summarise
from kdaprof.analysis.view import CellView
from kdaprof.runs.conditions import LIMITING_REASONS, Conditions, ConditionsSnapshot, ForeignProcess
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_bytes, format_fraction, format_ns, format_number, format_rate

FOREIGN_BYTES_MAX = 1 << 30
FOREIGN_UTIL_MAX = 0.05
UTIL_BEFORE_MAX = 0.05
CLOCK_SPREAD_MAX = 0.05
LOAD_PER_CORE_MAX = 0.5
STEAL_MAX = 0.05


class Watched(Protocol):
    """Whatever was measured while somebody looked at the machine: a run, an experiment."""

    @property
    def conditions(self) -> Conditions:
        """The machine before, during and after."""
        ...


def moments(run: Watched, *, now: bool = False) -> Iterator[tuple[str, ConditionsSnapshot]]:
    """Each snapshot of the run with when it was taken: before the run, `12.0 s into the run`, after it.

    `now`: no run follows, here and below, and the snapshot before it is one of now.
    """
    if run.conditions.before is not None:
        yield "now" if now else "before the run", run.conditions.before
    for snapshot in run.conditions.during:
        yield _moment(run.conditions.before, snapshot), snapshot
    if run.conditions.after is not None:
        yield "after the run", run.conditions.after


def _moment(before: ConditionsSnapshot | None, during: ConditionsSnapshot) -> str:
    """`12.0 s into the run`, counted from the look at the machine before it."""
    if before is None or during.monotonic_ns <= before.monotonic_ns:
        return "during the run"
    return f"{format_ns(during.monotonic_ns - before.monotonic_ns)} into the run"


def shared_card(run: Watched, *, now: bool = False) -> str | None:
    """Who else used the card, by the thresholds of Q03; None when nobody is known to have."""
    before = run.conditions.before
    for when, snapshot in moments(run, now=now):
        for process in (snapshot.gpu.foreign or ()) if snapshot.gpu else ():
            if _disturbs(process):
                return f"process {process.pid}{f' ({process.name})' if process.name else ''} {_use(process)} {when}"
    if before is not None and before.gpu is not None:
        util = before.gpu.util_before if before.gpu.util_before is not None else before.gpu.util
        if util is not None and util > UTIL_BEFORE_MAX:
            return f"the card was {format_fraction(util)} busy {_at_first(now)}"
    return None


def _at_first(now: bool) -> str:
    return "now" if now else "before the run began"


def _disturbs(process: ForeignProcess) -> bool:
    return (process.used_bytes or 0) > FOREIGN_BYTES_MAX or (process.util or 0.0) > FOREIGN_UTIL_MAX


def _use(process: ForeignProcess) -> str:
    parts = []
    if process.used_bytes is not None:
        parts.append(f"held {format_bytes(process.used_bytes)} of the card")
    if process.util is not None and process.util > FOREIGN_UTIL_MAX:
        parts.append(f"kept it {format_fraction(process.util)} busy")
    return " and ".join(parts)


def clock_limits(run: Watched, *, now: bool = False) -> str | None:
    """The limits that the card reported in any snapshot, in words; None when it reported none."""
    for when, snapshot in moments(run, now=now):
        limits = sorted(set(snapshot.gpu.throttle_reasons or ()) & LIMITING_REASONS) if snapshot.gpu else []
        if limits:
            return f"the card reported {', '.join(limits)} {when}"
    return None


def clock_spread(view: CellView) -> tuple[float, float] | None:
    """Median SM clock in Hz over the steady samples, and (p90 − p10) / median; None with fewer than two readings."""
    clocks = [float(s.sm_clock_hz) for s in view.steady() if s.sm_clock_hz]
    if len(clocks) < 2:
        return None
    summary = summarise(clocks)
    return summary.median, (summary.p90 - summary.p10) / summary.median


def loaded_host(run: Watched, *, now: bool = False) -> str | None:
    """What else the host did, by the thresholds of Q05; None when it is not known to have done anything."""
    before = run.conditions.before
    if before is not None and before.host.load1 is not None:
        # The load average counts the whole machine, so that the whole machine's cores are what it is held against.
        cores = before.host.cores_total or before.host.cores_available
        if cores and before.host.load1 > LOAD_PER_CORE_MAX * cores:
            return f"load average {format_number(before.host.load1)} on {cores} cores {_at_first(now)}"
    for when, snapshot in moments(run, now=now):
        if snapshot.host.steal is not None and snapshot.host.steal > STEAL_MAX:
            return f"the hypervisor took {format_fraction(snapshot.host.steal)} of the CPU time {when}"
    return None


def _on_card(view: CellView) -> bool:
    return view.cell.observed is not None and view.cell.observed.device == "cuda"


def _shared(view: CellView, name: str, fact: Fact) -> str | None:
    return shared_card(view.run) if _on_card(view) else None


def _moved(view: CellView, name: str, fact: Fact) -> str | None:
    if not _on_card(view):
        return None
    spread = clock_spread(view)
    if spread is not None and spread[1] > CLOCK_SPREAD_MAX:
        median = format_rate(spread[0], "Hz")
        return f"SM clock p90 − p10 is {format_fraction(spread[1])} of its median {median}"
    return clock_limits(view.run)


def _loaded(view: CellView, name: str, fact: Fact) -> str | None:
    return loaded_host(view.run)


CARD_SHARED = GuardRule(
    id="Q03",
    title="card shared",
    explanation=(
        "Another job used the card before, during or after the samples. A script that found the card free was joined "
        "by a process of 15 GB before it had started, and its runs crashed; another was killed in a collision of three."
    ),
    touches=TIMED | {"floor_ns"},
    judge=_shared,
    thresholds={
        "foreign_bytes_max": FOREIGN_BYTES_MAX,
        "foreign_util_max": FOREIGN_UTIL_MAX,
        "util_before_max": UTIL_BEFORE_MAX,
    },
)
CLOCKS_MOVED = GuardRule(
    id="Q04",
    title="clocks moved",
    explanation=(
        "Clock, power or thermal limits changed the card's speed under the samples. A matmul at 4.8 to 71 ms, fastest "
        "first, was a power cap, not code."
    ),
    touches=TIMED,
    judge=_moved,
    thresholds={"clock_spread_max": CLOCK_SPREAD_MAX},
)
HOST_LOADED = GuardRule(
    id="Q05",
    title="host loaded",
    explanation=(
        "Host times taken while the host had other work: a load average of 40 to 74 on 20 cores stood under a whole "
        "table of launch-bound figures. Device times stay as they are."
    ),
    touches=HOST_TIMED,
    judge=_loaded,
    thresholds={"load_per_core_max": LOAD_PER_CORE_MAX, "steal_max": STEAL_MAX},
)
