"""A cell's growing series of samples: every execution from step 0 on, none thrown away."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from kdaprof.runs.cells import CellKey
from kdaprof.runs.samples import Sample


class Case(Protocol):
    """Something that can be timed: `prepare(i)` is never seen by the clock, `run()` always is."""

    run: Callable[[], None]

    def prepare(self, index: int) -> None:
        """Choose inputs and put everything in place."""
        ...


@dataclass(slots=True)
class Series:
    """One cell while it is measured. The only mutable thing between the instruments and the store."""

    key: CellKey
    case: Case
    samples: list[Sample] = field(default_factory=list)
    calls: int = 0
    step: Callable[[], int] | None = None
    """Number of the training step that was executed last, for workloads that have steps."""

    def add(
        self,
        repeat: str,
        round_: int,
        t_ns: int,
        *,
        step: int | None = None,
        calls: int = 1,
        host_ns: int | None = None,
        wall_ns: int | None = None,
        gpu_span_ns: int | None = None,
        allocs: int | None = None,
        alloc_bytes: int | None = None,
        peak_bytes: int | None = None,
        reserved_bytes: int | None = None,
        sm_clock_hz: int | None = None,
    ) -> None:
        """Append one sample; its index counts within its kind of repeat, from 0."""
        index = sum(1 for sample in self.samples if sample.repeat == repeat)
        self.samples.append(
            Sample(
                cell=self.key.id,
                repeat=repeat,
                round=round_,
                index=index,
                t_ns=t_ns,
                step=step if step is not None or self.step is None else self.step(),
                calls=calls,
                host_ns=host_ns,
                wall_ns=wall_ns,
                gpu_span_ns=gpu_span_ns,
                allocs=allocs,
                alloc_bytes=alloc_bytes,
                peak_bytes=peak_bytes,
                reserved_bytes=reserved_bytes,
                sm_clock_hz=sm_clock_hz,
                load1=os.getloadavg()[0],
            )
        )

    def next_input(self) -> int:
        """Number of the next call: input sets rotate with it."""
        self.calls += 1
        return self.calls - 1

    def relabel_last(self, *, reserved_bytes: int) -> None:
        """Write what was read right behind the last sample onto it."""
        self.samples[-1] = replace(self.samples[-1], reserved_bytes=reserved_bytes)
