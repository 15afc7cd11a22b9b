"""What FLA's own dispatcher writes down: to which backend it handed a call, and which ones refused and why.

It logs each outcome once a process (`[FLA Backend] kda.chunk_kda -> flash_kda`), and of a refusal only the first
reason (FlashKDA#18). So what it remembers of its log is put aside for the call that is watched, and put back.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_LINE = re.compile(r"\[FLA Backend\] (?P<what>\S+) -> (?P<backend>\S+?)(?: rejected: (?P<why>.*))?$")
_LOGGER = "fla"
_DISPATCHERS = ("fla.backends", "fla.ops.backends")
"""Where the dispatcher lives: since 0.6, and before."""


@dataclass(slots=True)
class DispatchRecords:
    """What was logged while it was watched."""

    readable: bool = False
    """Whether this version has a dispatcher whose records are known; without one they prove nothing."""
    taken: list[tuple[str, str]] = field(default_factory=list)
    """(function, backend): the backend ran it."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """(backend, reason)."""

    def handed_to(self, function: str) -> str | None:
        """The backend that took a call of `function`, the whole op; None when FLA's own code ran."""
        return next((backend for what, backend in self.taken if what.rpartition(".")[2] == function), None)


class _Reader(logging.Handler):
    def __init__(self, records: DispatchRecords) -> None:
        super().__init__(logging.INFO)
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        line = _LINE.match(record.getMessage())
        if line is None:
            return
        if line["why"] is None:
            self._records.taken.append((line["what"], line["backend"]))
        else:
            self._records.refused.append((line["backend"], line["why"]))


@contextlib.contextmanager
def watch_dispatch() -> Iterator[DispatchRecords]:
    """Collect what FLA's dispatcher says inside the block, as if nothing had been said before; nothing is printed."""
    records = DispatchRecords(readable=any(name in sys.modules for name in _DISPATCHERS))
    logger = logging.getLogger(_LOGGER)
    level, propagate = logger.level, logger.propagate
    reader = _Reader(records)
    memories = [(memory, set(memory)) for memory in _memories()]
    for memory, _ in memories:
        memory.clear()
    logger.addHandler(reader)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield records
    finally:
        logger.removeHandler(reader)
        logger.setLevel(level)
        logger.propagate = propagate
        for memory, before in memories:
            memory.update(before)


def _memories() -> Iterator[set[str]]:
    """The sets in which the dispatcher remembers what it has logged; none where a version keeps them otherwise."""
    for name in _DISPATCHERS:
        module = sys.modules.get(name)
        for table in ("_function_registries", "_operation_registries"):
            registries: Any = getattr(module, table, None)
            if isinstance(registries, dict):
                for registry in registries.values():
                    memory = getattr(registry, "_logged", None)
                    if isinstance(memory, set):
                        yield memory
