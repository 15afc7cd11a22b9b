"""What does a training step do to the caching allocator, and what does an emptied pool cost it? Needs a GPU."""

from __future__ import annotations

from _run import probe

probe("--workload", "step", "--paths", "fused,tensor", "--modes", "eager", "--util-seconds", "0")
