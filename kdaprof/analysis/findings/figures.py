"""What findings share: figures that may be quoted, names of cells as people say them, shortening of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kdaprof.analysis.view import CellView
from kdaprof.runs.cells import CellKey
from kdaprof.runs.facts import Fact

PHASES = {"fwd": "forward", "bwd": "backward", "fwdbwd": "forward + backward"}


def quoted(facts: Mapping[str, Fact], name: str) -> float | None:
    """The figure's value when it is there and no rule refuses it."""
    fact = facts.get(name)
    return fact.value if fact is not None and fact.quotable else None


def on_card(view: CellView) -> bool:
    """Whether the cell ran on a GPU: without one its times are refused, and what disturbs them is no news."""
    return view.cell.observed is not None and view.cell.observed.device == "cuda"


def phase_of(key: CellKey) -> str:
    """`forward`, `forward + backward under autocast`."""
    return PHASES.get(key.phase, key.phase) + ("" if key.context == "plain" else f" under {key.context}")


def name_of(view: CellView) -> str:
    """`fused forward`, `tensor backward under checkpoint (graph)`."""
    key = view.cell.key
    return f"{key.path} {phase_of(key)}" + ("" if key.mode == "eager" else f" ({key.mode})")


def times(ratio: float) -> str:
    """`32.4 ×`: three digits, however large."""
    return f"{ratio:.3g} ×" if ratio < 1000 else f"{ratio:,.0f} ×"


def between(low: float, high: float) -> str:
    """`35.1…37.3`: three digits, rounded outwards, so that the interval shown holds the one computed."""
    places = max(0, 2 - math.floor(math.log10(high))) if high > 0 else 2
    scale = 10**places
    # A hair of slack: 1.1 × 100 is 110.00000000000001 in floating point, and not 111.
    down, up = math.floor(low * scale + 1e-6), math.ceil(high * scale - 1e-6)
    return f"{down / scale:.{places}f}…{up / scale:.{places}f}"
