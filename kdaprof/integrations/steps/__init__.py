"""`kdaprof.StepProfiler`: a training loop's own profiler, with a run directory and a live line."""

from __future__ import annotations

from kdaprof.instruments.steps.window import WindowPlan
from kdaprof.integrations.steps.profiler import StepProfiler

__all__ = ["StepProfiler", "WindowPlan"]
