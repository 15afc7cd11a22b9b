"""What is found of one device, and of a whole trace: plain data, made by `report`."""

from __future__ import annotations

from dataclasses import dataclass

from kdaprof.analysis.trace.bound import Decision
from kdaprof.analysis.trace.busy import BusySpan
from kdaprof.analysis.trace.counterfactual import Counterfactual
from kdaprof.analysis.trace.idle import IdleSplit
from kdaprof.analysis.trace.launches import KernelRow
from kdaprof.analysis.trace.operators import OperatorRow
from kdaprof.analysis.trace.paths import PathRow, TensorShape
from kdaprof.analysis.trace.phases import Outside, PhaseRow
from kdaprof.analysis.trace.quality import Quality
from kdaprof.analysis.trace.queue import ApiRow, Queue
from kdaprof.analysis.trace.ranks import Collective
from kdaprof.analysis.trace.steps import StepRow
from kdaprof.analysis.trace.strip import Strip
from kdaprof.runs.results import Finding
from kdaprof.timeline.columns import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """One device in scope. `span_ns = busy_ns + idle_ns`, also where the scope is made of several windows."""

    device: int
    name: str | None
    busy: BusySpan
    busy_ns: int
    idle: IdleSplit
    drained_by_sync_ns: int
    starved_ns: int
    queued_ns: int
    latency_ns: int | None
    launches: tuple[ApiRow, ...]
    queue: Queue | None
    kernels: tuple[KernelRow, ...]
    steps: tuple[StepRow, ...]
    phases: tuple[PhaseRow, ...]
    outside: Outside
    operators: tuple[OperatorRow, ...]
    modules: tuple[OperatorRow, ...]
    paths: tuple[PathRow, ...]
    tensor_shapes: tuple[TensorShape, ...]
    counterfactual: Counterfactual | None
    strip: Strip
    decision: Decision

    @property
    def span_ns(self) -> int:
        """Busy and idle in scope."""
        return self.busy_ns + self.idle.total_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """Everything found in one trace. `decision` is over all its devices; `host` describes a trace without any."""

    source: Source
    quality: Quality
    devices: tuple[DeviceReport, ...]
    decision: Decision
    findings: tuple[Finding, ...]
    collectives: tuple[Collective, ...]
    host_ns: int | None
    host_events: int
