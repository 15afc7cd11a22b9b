"""kdaprof: where a training step's time goes, which path ran, and whether the number may be quoted."""

__version__ = "0.1.0"
