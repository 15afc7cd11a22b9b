"""A device's time as a strip of bins: how busy each is, and the class that holds most of its idle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.intervals import Covered
from kdaprof.analysis.trace.context import DeviceView
from kdaprof.analysis.trace.idle import CLASSES

BINS = 64


@dataclass(frozen=True, slots=True)
class Strip:
    """`busy` [64]: busy share of each bin · `idle` [64]: the class with most idle in it, None when there is none.

    Bins are of equal length, from the device's first event to its last.
    """

    bin_ns: int
    busy: tuple[float, ...]
    idle: tuple[str | None, ...]


def strip_of(view: DeviceView) -> Strip:
    """The strip of one device in view. A gap's classes are spread evenly over it."""
    coverage, gaps = view.work.coverage, view.gaps
    begin, end = int(coverage.start_ns[0]), int(coverage.end_ns.max())
    edges = np.linspace(begin, end, BINS + 1).astype(np.int64)
    lengths = np.maximum(np.diff(edges), 1)
    covered = Covered(coverage.start_ns, coverage.end_ns)
    busy = covered.within(edges[:-1], edges[1:]) / lengths
    weights = np.zeros((len(CLASSES), BINS), dtype=np.float64)
    total = np.maximum(gaps.length_ns, 1)
    first = np.clip(np.searchsorted(edges, gaps.start_ns, side="right") - 1, 0, BINS - 1)
    last = np.clip(np.searchsorted(edges, gaps.end_ns, side="left") - 1, 0, BINS - 1)
    inside = first == last
    for index in range(len(CLASSES)):
        np.add.at(weights[index], first[inside], gaps.classes[index, inside])
    for gap in np.flatnonzero(~inside).tolist():
        bins = slice(int(first[gap]), int(last[gap]) + 1)
        overlap = np.minimum(edges[1:][bins], gaps.end_ns[gap]) - np.maximum(edges[:-1][bins], gaps.start_ns[gap])
        weights[:, bins] += np.outer(gaps.classes[:, gap], np.maximum(overlap, 0) / total[gap])
    largest = weights.argmax(axis=0)
    names = tuple(
        CLASSES[int(index)] if weights[index, place] > 0 else None for place, index in enumerate(largest.tolist())
    )
    return Strip(int(lengths[0]), tuple(float(share) for share in busy.tolist()), names)
