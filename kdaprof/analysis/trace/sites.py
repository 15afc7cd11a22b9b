"""Where in the user's code calls come from, as far as the trace recorded stacks."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.trace.apis import base_name
from kdaprof.analysis.trace.context import Context
from kdaprof.analysis.trace.operators import operator_at
from kdaprof.timeline.columns import MISSING, Index, Kind

SITE_SAMPLES = 200
"""Call sites are looked up for this many calls of a group, evenly spread; counts are always of all calls."""

_LIBRARY = re.compile(
    r"(site-packages/|(^|/)torch/|<built-in|nn\.Module|<frozen|(^|/)triton/|threading\.py|_bootstrap)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSite:
    """Calls of one API from one operator. `site`: the innermost frame of the user's own code, most frequent one,
    None where the trace has no stacks; `total_ns`: time inside the calls.
    """

    api: str
    operator: str | None
    calls: int
    total_ns: int
    site: str | None


def call_sites(context: Context, calls: Index) -> tuple[CallSite, ...]:
    """Group these calls by API and operator, longest first."""
    timeline = context.timeline
    operators = operator_at(context, calls)
    grouped: dict[tuple[str, str | None], list[int]] = {}
    for row, operator in zip(calls.tolist(), operators, strict=True):
        grouped.setdefault((base_name(timeline.name_of(row)), operator), []).append(row)
    found = [
        CallSite(
            api=api,
            operator=operator,
            calls=len(rows),
            total_ns=int((timeline.end_ns[rows] - timeline.start_ns[rows]).sum()),
            site=_usual_site(context, np.array(rows, dtype=np.intp)),
        )
        for (api, operator), rows in grouped.items()
    ]
    return tuple(sorted(found, key=lambda site: (-site.total_ns, site.api)))


def _usual_site(context: Context, calls: Index) -> str | None:
    timeline = context.timeline
    frames = np.flatnonzero(timeline.of_kind(Kind.PYTHON))
    stacked = np.flatnonzero(timeline.stack != MISSING)
    if not frames.size and not stacked.size:
        return None
    sampled = calls[:: max(1, calls.size // SITE_SAMPLES)]
    found: Counter[str] = Counter()
    for call in sampled.tolist():
        site = _frame_around(context, frames, call) or _recorded_stack(context, stacked, call)
        if site:
            found[site] += 1
    return found.most_common(1)[0][0] if found else None


def _around(context: Context, rows: Index, call: int) -> Index:
    """Rows of the call's thread that hold it, innermost first."""
    timeline = context.timeline
    at = timeline.start_ns[call]
    holding = (
        (timeline.start_ns[rows] <= at)
        & (timeline.end_ns[rows] > at)
        & (timeline.thread[rows] == timeline.thread[call])
    )
    inside = rows[holding]
    ordered: Index = inside[np.argsort(-timeline.start_ns[inside], kind="stable")]
    return ordered


def _frame_around(context: Context, frames: Index, call: int) -> str | None:
    names = [context.timeline.name_of(row) for row in _around(context, frames, call).tolist()]
    return next((name for name in names if not _LIBRARY.search(name)), names[0] if names else None)


def _recorded_stack(context: Context, stacked: Index, call: int) -> str | None:
    """From the `Call stack` that old profilers wrote with each operator, innermost frame first."""
    for row in _around(context, stacked, call).tolist():
        frames = [frame for frame in context.timeline.names[int(context.timeline.stack[row])].split(";") if frame]
        if frames:
            return next((frame for frame in frames if not _LIBRARY.search(frame)), frames[0])
    return None
