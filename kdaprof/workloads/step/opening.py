"""From a spec to what is timed: the built-in training step, or a user's own."""

from __future__ import annotations

from kdaprof.workloads.step.case import PhasedCase
from kdaprof.workloads.step.spec import StepSpec
from kdaprof.workloads.step.training import StepCase


def open_step(spec: StepSpec) -> PhasedCase:
    """The step that a spec names.

    Errors: UsageError for a target that cannot be imported or made; UnavailableError for a context that is not there.
    """
    if spec.target is not None:
        from kdaprof.workloads.target import TargetCase  # noqa: PLC0415  only who asks imports a user's code

        return TargetCase(spec)
    return StepCase(spec)
