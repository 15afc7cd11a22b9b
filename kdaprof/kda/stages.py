"""Names for the stages of a call, for whoever watches it: a profiled repeat sets `on_stage`, nobody else does.

Without a watcher a stage costs one comparison. Compiled regions have no stages: a range inside one would break the
graph or be compiled away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

on_stage: Callable[[str], contextlib.AbstractContextManager[object]] | None = None
"""Called with the stage's name on the thread that runs it; the block is the stage's host side."""

_NOTHING = contextlib.nullcontext()


def stage(name: str) -> contextlib.AbstractContextManager[object]:
    """A block that is the stage `name` of the call in progress."""
    if torch.compiler.is_compiling() or on_stage is None:
        return _NOTHING
    return on_stage(name)


@contextlib.contextmanager
def watched(
    watcher: Callable[[str], contextlib.AbstractContextManager[object]],
) -> Iterator[None]:
    """Let `watcher` see the stages of every call in the process inside the block."""
    global on_stage  # noqa: PLW0603 - the one switch of this module
    before, on_stage = on_stage, watcher
    try:
        yield
    finally:
        on_stage = before
