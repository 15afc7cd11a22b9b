"""Stacks in the format of speedscope (https://www.speedscope.app): drop the file there; nothing is uploaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kdaprof.analysis.stacks_trace import Frame, ThreadStacks

Json = dict[str, Any]  # a foreign format; its test reads it back
_FORMAT = "https://www.speedscope.app/file-format-schema.json"


def speedscope(stacks: Sequence[ThreadStacks], *, name: str, tool: str) -> Json:
    """One sampled profile a thread, weights in ns, at its own times since the first stack of all.

    The format has no times but sums of weights, so that a time without a stack is an empty one.
    """
    begin = min((thread.stretches[0].start_ns for thread in stacks if thread.stretches), default=0)
    numbers: dict[Frame, int] = {}
    profiles = []
    for thread in stacks:
        if not thread.stretches:
            continue
        samples: list[list[int]] = []
        weights: list[int] = []
        reached = thread.stretches[0].start_ns
        for stretch in thread.stretches:
            if stretch.start_ns > reached:
                samples.append([])
                weights.append(stretch.start_ns - reached)
            samples.append([numbers.setdefault(frame, len(numbers)) for frame in stretch.frames])
            weights.append(stretch.end_ns - stretch.start_ns)
            reached = stretch.end_ns
        profiles.append(
            {
                "type": "sampled",
                "name": f"{thread.name or 'thread'} {thread.tid or ''}".strip(),
                "unit": "nanoseconds",
                "startValue": thread.stretches[0].start_ns - begin,
                "endValue": thread.stretches[-1].end_ns - begin,
                "samples": samples,
                "weights": weights,
            }
        )
    frames = [{"name": f.name, "file": f.file, **({"line": f.line} if f.line else {})} for f in numbers]
    return {
        "$schema": _FORMAT,
        "name": name,
        "exporter": tool,
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    }
