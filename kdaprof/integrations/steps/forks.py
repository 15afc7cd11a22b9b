"""Forked children, as data loaders make them: each gets a copy of every profiler, and none has a part in the loop."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Parted(Protocol):
    """What a forked child must not go on with."""

    def let_go(self) -> None:
        """Become inert: called in a forked child, before any of its own code runs."""
        ...


_known: WeakSet[Parted] = WeakSet()


def let_go_in_children(of: Parted) -> None:
    """From now on, each child of a fork calls `of.let_go()` first. `of` is not kept alive by this."""
    _known.add(of)


def _in_child() -> None:
    for one in tuple(_known):
        one.let_go()


os.register_at_fork(after_in_child=_in_child)
