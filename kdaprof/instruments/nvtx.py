"""Ranges that Nsight shows: domain `kdaprof`, a category each for run, cell, phase and stage, with a payload.

Start/end ranges, not push/pop: they belong to the process, so a phase also holds what autograd's own thread
launches. Without a tool attached nvtx hands out a dummy domain and a range costs next to nothing; `nvtx.enabled()`
is true even then, so whether anybody listens is read off the domain's type. `KDAPROF_NVTX=0` switches ranges off.
"""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from kdaprof.instruments.clock import Clock

DOMAIN = "kdaprof"
Category = Literal["run", "cell", "phase", "stage"]
NOBODY_LISTENS = "no tool is attached that collects NVTX"
_COLORS: dict[Category, str] = {"run": "white", "cell": "blue", "phase": "green", "stage": "yellow"}


class Ranges(Protocol):
    """Named ranges in time. A token from `start` ends exactly one range, in any thread."""

    @property
    def missing(self) -> str | None:
        """Why nobody will see the ranges; None when a tool is attached."""
        ...

    def start(self, name: str, category: Category, payload: int | float | None = None) -> int:
        """Begin a range."""
        ...

    def end(self, token: int) -> None:
        """End it."""
        ...


class NvtxRanges:
    """Ranges through the package nvtx. Attributes of a name are made once: that is most of a range's cost."""

    def __init__(self, nvtx: Any) -> None:
        self._domain = nvtx.get_domain(DOMAIN)
        self._attributes: dict[tuple[str, Category], Any] = {}
        listening = type(self._domain).__name__ != "DummyDomain"
        self.missing: str | None = None if listening else NOBODY_LISTENS

    def start(self, name: str, category: Category, payload: int | float | None = None) -> int:
        """Begin a range; `payload` is shown beside it (repeat index, bytes, …)."""
        if payload is not None:
            # Attributes with a payload are values of their own: they cannot be kept for the next range.
            attributes = self._domain.get_event_attributes(name, _COLORS[category], category, payload)
        else:
            key = (name, category)
            attributes = self._attributes.get(key)
            if attributes is None:
                attributes = self._domain.get_event_attributes(name, _COLORS[category], category)
                self._attributes[key] = attributes
        return int(self._domain.start_range(attributes))

    def end(self, token: int) -> None:
        """End it."""
        self._domain.end_range(token)


class ModuleRanges:
    """Ranges through the functions of the module, for nvtx 0.2.11: its domains begin none themselves.

    That version does not tell whether a tool listens; a tool that collects NVTX names itself in the environment.
    """

    def __init__(self, nvtx: Any, environ: Mapping[str, str]) -> None:
        self._nvtx = nvtx
        self._open: dict[int, Any] = {}
        self._tokens = itertools.count(1)
        self.missing: str | None = None if environ.get("NVTX_INJECTION64_PATH") else NOBODY_LISTENS

    def start(self, name: str, category: Category, payload: int | float | None = None) -> int:
        """Begin a range; `payload` is shown beside it."""
        token = next(self._tokens)
        self._open[token] = self._nvtx.start_range(
            name, color=_COLORS[category], domain=DOMAIN, category=category, payload=payload
        )
        return token

    def end(self, token: int) -> None:
        """End it."""
        self._nvtx.end_range(self._open.pop(token))


class NoRanges:
    """No ranges, with the reason."""

    def __init__(self, missing: str) -> None:
        self.missing: str | None = missing

    def start(self, name: str, category: Category, payload: int | float | None = None) -> int:
        """Nothing begins."""
        return 0

    def end(self, token: int) -> None:
        """Nothing ends."""


@contextmanager
def in_range(ranges: Ranges, name: str, category: Category, payload: int | float | None = None) -> Iterator[None]:
    """A range around a block, ended also when the block raises."""
    token = ranges.start(name, category, payload)
    try:
        yield
    finally:
        ranges.end(token)


def open_ranges(environ: Mapping[str, str] | None = None) -> Ranges:
    """Ranges, or why there are none: switched off, or the package is not installed."""
    environ = os.environ if environ is None else environ
    if environ.get("KDAPROF_NVTX") == "0":
        return NoRanges("switched off by KDAPROF_NVTX=0")
    try:
        nvtx = importlib.import_module("nvtx")
        if hasattr(nvtx.get_domain(DOMAIN), "start_range"):
            return NvtxRanges(nvtx)
        return ModuleRanges(nvtx, environ)
    except (ImportError, AttributeError) as error:
        return NoRanges(f"the package nvtx cannot be used ({error}): pip install 'nvtx>=0.2.11'")


def range_cost_ns(ranges: Ranges, clock: Clock, count: int = 1000) -> float:
    """Mean host time of one range, start and end together, in ns, over `count` ranges."""
    ranges.end(ranges.start("cost", "stage"))
    start = clock.now_ns()
    for _ in range(count):
        ranges.end(ranges.start("cost", "stage"))
    return (clock.now_ns() - start) / count
