"""kdaprof: where a training step's time goes, which path ran, and whether the number may be quoted.

`kdaprof.load(run)` opens a stored run; `kdaprof.StepProfiler` watches a training loop. Both are imported when used.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

_LAZY = {"load": "kdaprof.analysis.frames", "StepProfiler": "kdaprof.integrations.steps"}


def __getattr__(name: str) -> object:
    """The public names, each imported from its room at first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'kdaprof' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
