"""What does the first call cost in a process with empty Triton and inductor caches? Needs a GPU."""

from __future__ import annotations

from _run import probe

probe("--paths", "fused,compiled", "--phases", "fwdbwd", "--modes", "eager", "--cold", "--util-seconds", "0")
