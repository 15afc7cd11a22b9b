"""Q01 for a target's series: samples before the steady segment are no samples of speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kdaprof.analysis.ab.evidence import SideEvidence
from kdaprof.analysis.warmup import find_warmup
from kdaprof.runs.facts import Reason


def steady_only(side: SideEvidence, warm_ns: Sequence[int]) -> SideEvidence:
    """`side` without the samples that are still cold; refused by Q01 when the series has no steady state."""
    series = [*warm_ns, *(wall for number in sorted(side.rounds) for wall in side.rounds[number])]
    found = find_warmup(list(enumerate(series)))
    if found.steady_from is None:
        return replace(side, refused=(*side.refused, Reason("Q01", f"not warm: {found.detail}")))
    index, rounds = len(warm_ns), {}
    for number in sorted(side.rounds):
        walls = side.rounds[number]
        kept = walls[max(0, found.steady_from - index) :]
        index += len(walls)
        if kept:
            rounds[number] = kept
    return replace(side, rounds=rounds)
