"""What the profiler itself costs the loop, measured on this machine before the loop begins."""

from __future__ import annotations

from kdaprof.analysis.loop_cost import PHASE_COST, STEP_COST
from kdaprof.instruments.overhead import measure
from kdaprof.instruments.steps import StepRecorder
from kdaprof.instruments.steps.spans import StepSpans
from kdaprof.integrations.steps.lab import LoopLab
from kdaprof.runs.record import OwnCost

_PHASES = tuple(f"cost{number}" for number in range(6))
_STEPS = 16


def own_costs(lab: LoopLab) -> tuple[OwnCost, ...]:
    """Host time of an empty step, and of each phase in it: marks, ranges, clock, gate counters, reading marks later."""
    recorder = StepRecorder(
        clock=lab.clock, borders=lab.borders, ranges=lab.ranges, allocator=lab.allocator, on_step=_drop
    )
    phases = tuple(recorder.phase(name) for name in _PHASES)

    def bare() -> None:
        with recorder.step():
            pass
        lab.counters()

    def full() -> None:
        with recorder.step():
            for phase in phases:
                with phase:
                    pass
        lab.counters()

    step, whole = (measure("", use, lab.clock, _STEPS) for use in (bare, full))
    recorder.drain()
    if step.ns_per_call is None or whole.ns_per_call is None:
        return ()
    each = max(0.0, whole.ns_per_call - step.ns_per_call) / len(_PHASES)
    return (OwnCost(name=STEP_COST, ns=step.ns_per_call, n=step.n), OwnCost(name=PHASE_COST, ns=each, n=whole.n))


def _drop(spans: StepSpans) -> None:
    """A step of the measurement is no sample."""
