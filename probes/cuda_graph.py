"""What does capturing the call into a CUDA Graph buy? Eager → graph → busy → floor, on each path."""

from __future__ import annotations

from _run import probe

probe("--paths", "fused,tensor", "--phases", "fwd,fwdbwd", "--modes", "eager,graph", "--util-seconds", "0")
