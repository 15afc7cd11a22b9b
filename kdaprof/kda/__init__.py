"""The op: Kimi Delta Attention and GDN-2, its paths, the gate between them and the gate's books.

Importing this package imports no torch; the first use of a name does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kdaprof.kda.api import gdn2, kda
    from kdaprof.kda.gate import KdaFallbackWarning
    from kdaprof.kda.ledger import counters, gate_records, record, reset_counters
    from kdaprof.kda.values import validate

__all__ = [
    "KdaFallbackWarning",
    "counters",
    "gate_records",
    "gdn2",
    "kda",
    "record",
    "reset_counters",
    "validate",
]

_HOMES = {
    "KdaFallbackWarning": "gate",
    "counters": "ledger",
    "gate_records": "ledger",
    "gdn2": "api",
    "kda": "api",
    "record": "ledger",
    "reset_counters": "ledger",
    "validate": "values",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # the next use is an ordinary attribute
    return value
