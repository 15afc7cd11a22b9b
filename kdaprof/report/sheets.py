"""Which tables a run has: one function a table, from pairs of cells to columns of figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kdaprof.report.labels import IDLE_CLASSES, label
from kdaprof.report.pairs import Naming, Pair
from kdaprof.report.tables import FigureColumn, Table, figure_table
from kdaprof.runs.facts import EAGER_FACTS, GRAPH_FACTS, Fact

# (mode, fact, header or None for the usual one, spread)
Spec = tuple[str, str, str | None, str | None]

MAIN: tuple[Spec, ...] = (
    ("eager", "wall_ns", None, "ci95"),
    ("eager", "host_ns", None, None),
    ("eager", "gpu_busy_ns", None, None),
    ("eager", "host_bound", None, None),
    ("eager", "launches", None, None),
    ("eager", "allocs", None, None),
    ("eager", "peak_bytes", None, None),
    ("eager", "error_l2", None, None),
)
GRAPH: tuple[Spec, ...] = (
    ("eager", "wall_ns", "eager wall", None),
    ("graph", "wall_ns", "graph wall", "ci95"),
    ("eager", "gpu_busy_ns", "busy", None),
    ("eager", "floor_ns", None, None),
    ("eager", "idle_ns", "launch overhead", None),
    ("eager", "graph_removed", None, "ci95"),
    ("graph", "input_copy_ns", None, None),
    ("graph", "pool_bytes", None, None),
    ("graph", "error_l2", "replay error", None),
)
WATCHED: tuple[Spec, ...] = (
    ("eager", "util_mean", None, None),
    ("eager", "util_idle_share", None, None),
    ("eager", "inflation", "profiler inflation ×", "ci95"),
)
MORE: tuple[Spec, ...] = (
    ("eager", "pipelined_ns", None, None),
    ("eager", "gpu_span_ns", None, None),
    ("eager", "floor_share", None, None),
    ("eager", "tokens_per_s", None, None),
    ("eager", "cold_ns", None, None),
    ("eager", "alloc_bytes", None, None),
    ("eager", "reserved_growth_bytes", None, None),
    ("eager", "error_max", None, None),
)


def table_of(pairs: Sequence[Pair], names: Naming, specs: Sequence[Spec]) -> Table:
    """One row a pair, one column a spec."""
    texts = [(header, [get(pair.key) for pair in pairs]) for header, get in names.columns]
    return figure_table(texts, [column(pairs, spec) for spec in specs])


def column(pairs: Sequence[Pair], spec: Spec) -> FigureColumn:
    """The figures of one spec, row by row."""
    mode, fact, header, spread = spec
    unit = (GRAPH_FACTS if mode == "graph" else EAGER_FACTS)[fact]
    facts = tuple(pair.fact(mode, fact) for pair in pairs)
    return FigureColumn(header or label(fact), unit, facts, spread, is_error=fact.startswith("error_"))


def main_table(pairs: Sequence[Pair], names: Naming) -> Table:
    """The eager figures, one row a cell."""
    return table_of([pair for pair in pairs if pair.eager], names, MAIN)


def graph_table(pairs: Sequence[Pair], names: Naming) -> Table:
    """Eager → graph → busy → floor, for the pairs that were captured or tried."""
    return table_of([pair for pair in pairs if pair.graph], names, GRAPH)


def idle_table(pairs: Sequence[Pair], names: Naming) -> Table:
    """Where the idle goes; classes that are zero everywhere are left out silently."""
    rows = [pair for pair in pairs if pair.eager]
    told = [name for name in IDLE_CLASSES if any(_value(pair, name) for pair in rows)]
    kept = told or list(IDLE_CLASSES)
    specs: list[Spec] = [("eager", "idle_ns", "idle", None)]
    specs += [("eager", name, None, "range") for name in kept]
    specs.append(("eager", "drained_by_sync_ns", None, "range"))
    return table_of(rows, names, specs)


def more_table(pairs: Sequence[Pair], names: Naming) -> Table:
    """The figures that are asked for less often."""
    return table_of([pair for pair in pairs if pair.eager], names, MORE)


def watched_table(pairs: Sequence[Pair], names: Naming) -> Table:
    """Sampled utilisation beside the device-busy share, and what the profiler costs."""
    rows = [pair for pair in pairs if pair.eager]
    texts = [(header, [get(pair.key) for pair in rows]) for header, get in names.columns]
    busy = FigureColumn(
        "busy / wall", "fraction", tuple(_complement(pair.fact("eager", "host_bound")) for pair in rows)
    )
    return figure_table(texts, [busy, *(column(rows, spec) for spec in WATCHED)])


def _complement(share: Fact | None) -> Fact | None:
    """1 − share, refused and missing as the share is: the same figure seen from the other side."""
    if share is None or share.value is None:
        return share
    turned = (1 - share.ci95[1], 1 - share.ci95[0]) if share.ci95 else None
    return replace(share, value=1 - share.value, min=None, max=None, p10=None, p90=None, ci95=turned)


def _value(pair: Pair, name: str) -> float | int | None:
    fact = pair.fact("eager", name)
    return fact.value if fact else None
