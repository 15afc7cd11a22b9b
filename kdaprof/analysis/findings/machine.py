"""Findings about the machine, one a run: who else used the card, limits, a busy host; and clocks, one a cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdaprof.analysis.findings.figures import name_of, on_card
from kdaprof.analysis.guards.machine import (
    CLOCK_SPREAD_MAX,
    FOREIGN_BYTES_MAX,
    FOREIGN_UTIL_MAX,
    LOAD_PER_CORE_MAX,
    STEAL_MAX,
    UTIL_BEFORE_MAX,
    clock_limits,
    clock_spread,
    loaded_host,
    shared_card,
)
from kdaprof.analysis.view import CellView
from kdaprof.runs.results import Finding
from kdaprof.runs.units import format_fraction, format_rate


def card_shared(views: Sequence[CellView]) -> Iterator[Finding]:
    """Another job on the card."""
    if not any(on_card(view) for view in views):
        return
    text, before = shared_card(views[0].run), views[0].run.conditions.before
    if text is not None:
        yield Finding(
            id="card-shared",
            severity="warn",
            cell=None,
            text=f"the card was shared: {text}",
            evidence={"util_before": before.gpu.util_before if before is not None and before.gpu is not None else None},
            threshold={
                "foreign_bytes_max": FOREIGN_BYTES_MAX,
                "foreign_util_max": FOREIGN_UTIL_MAX,
                "util_before_max": UTIL_BEFORE_MAX,
            },
            next="Wait until the card is yours alone and run again; every timed figure of this run is refused (Q03).",
        )


def clocks_limited(views: Sequence[CellView]) -> Iterator[Finding]:
    """The card ran into a power, thermal or hardware limit."""
    text = clock_limits(views[0].run) if any(on_card(view) for view in views) else None
    if text is not None:
        yield Finding(
            id="clocks-limited",
            severity="warn",
            cell=None,
            text=f"clocks were held back: {text}",
            evidence={"limits": text},
            threshold={"limiting_reasons_max": 0},
            next="Cool the card, raise its power limit, or measure shorter; timed figures are refused (Q04).",
        )


def clocks_moved(views: Sequence[CellView]) -> Iterator[Finding]:
    """The SM clock moved under a cell's samples."""
    for view in views:
        spread = clock_spread(view)
        if spread is None or spread[1] <= CLOCK_SPREAD_MAX:
            continue
        yield Finding(
            id="clocks-moved",
            severity="warn",
            cell=view.cell.id,
            text=(
                f"{name_of(view)}: the SM clock's p90 − p10 is {format_fraction(spread[1])} of its median "
                f"{format_rate(spread[0], 'Hz')}"
            ),
            evidence={"sm_clock_hz": spread[0], "spread": spread[1]},
            threshold={"spread_max": CLOCK_SPREAD_MAX},
            next="Let the card settle, with pauses between rounds, and run again.",
        )


def host_loaded(views: Sequence[CellView]) -> Iterator[Finding]:
    """The host had other work."""
    if not any(on_card(view) for view in views):
        return
    text, before = loaded_host(views[0].run), views[0].run.conditions.before
    if text is not None:
        yield Finding(
            id="host-loaded",
            severity="warn",
            cell=None,
            text=f"the host was not quiet: {text}",
            evidence={
                "load1": before.host.load1 if before else None,
                "cores": before.host.cores_total if before else None,
                "steal": before.host.steal if before else None,
            },
            threshold={"load_per_core_max": LOAD_PER_CORE_MAX, "steal_max": STEAL_MAX},
            next="Stop the other work and run again: host times are refused (Q05), device times stand.",
        )
