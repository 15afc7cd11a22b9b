"""Keeps impossible events out of a timeline, and counts them by reason.

Profilers have written starts of 0, durations of centuries and negative ones. One of them in a sum of idle or
busy makes the figure worthless, so they are out, and the count is shown.
"""

from __future__ import annotations

import numpy as np

from kdaprof.timeline.columns import CALL_KINDS, DEVICE_KINDS, Bool, Int64, Kind, UInt8

LONGEST_NS = 24 * 3600 * 10**9
"""No single event of a trace lasts a day."""

TAIL_NS = 60 * 10**9
"""A device event that ends so long after the last record of host and device began has a corrupt duration."""

FAR_NS = 366 * 24 * 3600 * 10**9
"""No event of a trace begins a year away from the middle one."""

NO_START = np.iinfo(np.int64).min
"""What readers put where a record has no readable start."""

NO_END = np.iinfo(np.int64).min + 1
"""What readers put where a record has a start, but no readable duration."""

_ZERO_IS_WRONG_AFTER_NS = 3600 * 10**9


def clean(kind: UInt8, start: Int64, end: Int64) -> tuple[Bool | None, dict[str, int]]:
    """Which events can be kept (None: all), and how many cannot, by reason."""
    bad: dict[str, Bool] = {}
    if not start.size:
        return None, {}
    bad["no start time"] = start == NO_START
    bad["no duration"] = (end == NO_END) & ~bad["no start time"]
    timed = ~(bad["no start time"] | bad["no duration"])
    middle = int(np.median(start[timed][:: max(1, start.size // 10_000)])) if timed.any() else 0
    if middle > _ZERO_IS_WRONG_AFTER_NS:
        bad["start time 0"] = timed & (start <= 0)
        timed &= ~bad["start time 0"]
    # In halves, so that the difference of two extreme times does not overflow.
    bad["start time far from the others"] = timed & (np.abs(start // 2 - middle // 2) > FAR_NS // 2)
    timed &= ~bad["start time far from the others"]
    bad["negative duration"] = timed & (end < start)
    timed &= ~bad["negative duration"]
    with np.errstate(over="ignore"):
        bad["longer than a day"] = timed & (end - start > LONGEST_NS)
    timed &= ~bad["longer than a day"]
    if timed.any():
        table = np.zeros(256, dtype=np.bool_)
        table[list(DEVICE_KINDS)] = True
        on_device = table[kind]
        calls = np.zeros(256, dtype=np.bool_)
        calls[[*CALL_KINDS, Kind.CPU_OP]] = True
        host_ends = end[timed & calls[kind]]
        last = max(int(start[timed].max()), int(host_ends.max()) if host_ends.size else NO_START)
        bad["ends long after the trace"] = timed & on_device & (end > last + TAIL_NS)
    counts = {reason: int(mask.sum()) for reason, mask in bad.items() if mask.any()}
    if not counts:
        return None, {}
    keep = np.ones(start.shape[0], dtype=np.bool_)
    for mask in bad.values():
        keep &= ~mask
    return keep, counts
