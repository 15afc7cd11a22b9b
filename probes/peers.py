"""How does each peer compare with our paths, all held to the same reference? Needs a GPU and `kdaprof[peers]`.

FLA tunes its kernels in its first calls, for minutes: `--cold-limit S` bounds each of them.
"""

from __future__ import annotations

from _run import probe

probe("--paths", "fused,tensor,fla,flashkda", "--phases", "fwd,fwdbwd", "--cold-limit", "600", "--util-seconds", "0")
