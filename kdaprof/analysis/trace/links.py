"""Which call launched which device event, by correlation; one launch may own many events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.trace.apis import Api, properties
from kdaprof.timeline.columns import CALL_KINDS, Bool, Index, Kind, Timeline, UInt8

NO_CALL = -1


@dataclass(frozen=True, slots=True)
class Links:
    """`calls`: rows of all runtime and driver calls [c], by start · `api`: their properties [c].

    `call_of`: for each row of the timeline [n] the row of its launch call, `NO_CALL` where there is none
    (only device events have one) · `launches`: rows of the launch calls, by start · `synchronises`: mask [n] of
    calls that wait for the device · `drains`: mask [n] of calls that keep the host from running ahead: those
    that wait, and page-locked allocations (they serialise with the device, and stage the blocking copy that
    follows) · `api_of_row`: properties [n], 0 for what is no call.
    """

    calls: Index
    api: UInt8
    call_of: Index
    launches: Index
    synchronises: Bool
    drains: Bool
    api_of_row: UInt8


def link(timeline: Timeline) -> Links:
    """Join device events with their launch calls.

    A correlation without a call known as a launch is joined with any call of that correlation (a launch API
    that kdaprof does not know yet is still a launch, since a device event came of it).
    """
    n = len(timeline)
    rows = np.flatnonzero(timeline.of_kind(*CALL_KINDS))
    rows = rows[np.argsort(timeline.start_ns[rows], kind="stable")]
    api = properties(timeline.names)[timeline.name[rows]] if rows.size else np.empty(0, dtype=np.uint8)
    api_of_row = np.zeros(n, dtype=np.uint8)
    api_of_row[rows] = api
    launch = (api & Api.LAUNCH) != 0
    call_of = np.full(n, NO_CALL, dtype=np.intp)
    device = np.flatnonzero(timeline.device_mask & (timeline.correlation > 0))
    _join(timeline, device, rows[launch], call_of)
    _join(timeline, device[call_of[device] == NO_CALL], rows[~launch], call_of)
    unknown = np.unique(call_of[device])
    unknown = unknown[unknown >= 0]
    api_of_row[unknown] |= np.uint8(Api.LAUNCH)
    launches = np.flatnonzero(api_of_row & Api.LAUNCH)
    launches = launches[np.argsort(timeline.start_ns[launches], kind="stable")]
    synchronises = _synchronising(timeline, api_of_row, call_of, device)
    return Links(
        calls=rows,
        api=api_of_row[rows],
        call_of=call_of,
        launches=launches,
        synchronises=synchronises,
        drains=synchronises | ((api_of_row & Api.PINNED) != 0),
        api_of_row=api_of_row,
    )


def _join(timeline: Timeline, events: Index, calls: Index, call_of: Index) -> None:
    if not events.size or not calls.size:
        return
    keys = timeline.correlation[calls]
    order = np.argsort(keys, kind="stable")  # of two calls with one correlation the first (outer) one counts
    keys = keys[order]
    wanted = timeline.correlation[events]
    place = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    found = keys[place] == wanted
    call_of[events[found]] = calls[order[place[found]]]


def _synchronising(timeline: Timeline, api: UInt8, call_of: Index, device: Index) -> Bool:
    """Synchronise calls, and copies that return only when done: blocking ones, device to pageable host.

    A copy within the device (DtoD) does not hold the host, whatever its call is named.
    """
    waits = (api & Api.SYNC) != 0
    copies = device[(timeline.kind[device] == Kind.MEMCPY) & (call_of[device] >= 0)]
    names = timeline.names
    to_pageable = np.array(["DtoH" in name and "ageable" in name for name in names], dtype=np.bool_)
    within = np.array(["DtoD" in name or "PtoP" in name for name in names], dtype=np.bool_)
    blocking = (api & Api.BLOCKING_COPY) != 0
    if copies.size:
        blocking[call_of[copies[within[timeline.name[copies]]]]] = False
        waits[call_of[copies[to_pageable[timeline.name[copies]]]]] = True
    found: Bool = waits | blocking
    return found
