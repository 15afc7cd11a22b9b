"""Did the op take the path it was meant to, in every way that training wraps it? A cell a context, three witnesses."""

from __future__ import annotations

from _run import probe

probe(
    "--path", "fused",
    "--contexts", "plain,autocast,checkpoint,checkpoint-reentrant,partial-grad,non-contiguous,compile,vmap",
    "--phases", "fwdbwd",
    "--modes", "eager",
    "--rounds", "3",
    "--samples", "5",
    "--util-seconds", "0",
)  # fmt: skip
