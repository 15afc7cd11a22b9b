"""What a host thread was doing in any span: waiting, allocating, compiling, dispatching, or nothing traced."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from kdaprof.analysis.intervals import Covered
from kdaprof.analysis.trace.apis import Api, is_jit_operator
from kdaprof.analysis.trace.links import Links
from kdaprof.timeline.columns import CALL_KINDS, Bool, Int64, Kind, Timeline

JIT_ANNOTATION = "kdaprof.jit"
"""Prefix of the annotations with which the probe's hooks mark compiling: a trace alone does not show it."""

_JIT_PYTHON = re.compile(
    r".*(triton/compiler/\w+\.py\(\d+\): (compile|make_\w+)|triton/runtime/autotuner\.py\(\d+\): (_bench|benchmark)"
    r"|torch/_inductor/(compile_fx|codecache|async_compile)\.py|torch/_dynamo/convert_frame\.py"
    r"|torch/utils/cpp_extension\.py)"
)


@dataclass(frozen=True, slots=True)
class HostTime:
    """Nanoseconds of each span [m] by what the thread did; the five add up to the length of the span."""

    sync: Int64
    allocator: Int64
    jit: Int64
    dispatch: Int64
    host_other: Int64


class HostState:
    """Answers for any thread and span what the thread was doing.

    Where activities nest, the first of sync, allocator, jit, dispatch that holds counts: a synchronise inside
    an operator is a synchronise. Annotations never count as dispatch.
    """

    def __init__(self, timeline: Timeline, links: Links) -> None:
        self._timeline = timeline
        api = links.api_of_row
        self._sync = links.synchronises
        self._drains = links.drains
        self._allocator: Bool = (api & Api.ALLOCATOR) != 0
        self._jit: Bool = ((api & Api.JIT) != 0) | self._jit_records()
        self._dispatch = timeline.of_kind(Kind.CPU_OP, *CALL_KINDS)
        self._threads: dict[int, tuple[Covered, ...]] = {}
        self._sync_starts: dict[int, Int64] = {}

    def spent(self, thread: int, start_ns: Int64, end_ns: Int64) -> HostTime:
        """What `thread` did in each span [m]; a span that ends before it begins is empty."""
        sync, allocator, jit, dispatch = (c.within(start_ns, end_ns) for c in self._covered(thread))
        length = np.maximum(end_ns - start_ns, 0)
        return HostTime(sync, allocator - sync, jit - allocator, dispatch - jit, length - dispatch)

    def synchronised(self, thread: int, since_ns: Int64, before_ns: Int64) -> Bool:
        """Whether the thread began a call that holds the host back in [since, before), for each pair [m]."""
        starts = self._sync_starts.get(thread)
        if starts is None:
            mask = self._drains & (self._timeline.thread == thread)
            starts = self._sync_starts[thread] = np.sort(self._timeline.start_ns[mask])
        found: Bool = np.searchsorted(starts, before_ns) > np.searchsorted(starts, since_ns)
        return found

    def _covered(self, thread: int) -> tuple[Covered, ...]:
        """Unions of the first one, two, three and four activities: differences are exclusive times."""
        known = self._threads.get(thread)
        if known is None:
            timeline = self._timeline
            mine = timeline.thread == thread
            chosen = np.zeros(len(timeline), dtype=np.bool_)
            parts = []
            for activity in (self._sync, self._allocator, self._jit, self._dispatch):
                chosen = chosen | (activity & mine)
                parts.append(Covered(timeline.start_ns[chosen], timeline.end_ns[chosen]))
            known = self._threads[thread] = tuple(parts)
        return known

    def _jit_records(self) -> Bool:
        """Operators, overhead records, Python frames and the probe's own marks that compile or load code."""
        timeline = self._timeline
        mask = np.zeros(len(timeline), dtype=np.bool_)
        operators = np.array([is_jit_operator(name) for name in timeline.names], dtype=np.bool_)
        frames = np.array([_JIT_PYTHON.match(name) is not None for name in timeline.names], dtype=np.bool_)
        marks = np.array([name.startswith(JIT_ANNOTATION) for name in timeline.names], dtype=np.bool_)
        for table, kinds in (
            (operators, (Kind.CPU_OP, Kind.OVERHEAD)),
            (frames, (Kind.PYTHON,)),
            (marks, (Kind.ANNOTATION, Kind.CPU_OP)),
        ):
            if table.any():
                mask |= table[timeline.name] & timeline.of_kind(*kinds)
        return mask
