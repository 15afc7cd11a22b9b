"""Watching a training loop from inside: borders of steps and phases, read later, never synchronising the loop.

`StepRecorder` is the instrument, each of its parts behind a seam; `kdaprof.StepProfiler` is the recorder with a run
directory, an analysis of its profiled windows and a live line. Importing this package imports torch.
"""

from __future__ import annotations

from kdaprof.instruments.steps.recorder import StepRecorder

__all__ = ["StepRecorder"]
