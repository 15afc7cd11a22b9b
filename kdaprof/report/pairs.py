"""Cells as a reader meets them: eager and graph of one call side by side, named by what differs in this run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kdaprof.runs.cells import CellKey
from kdaprof.runs.document import not_derived
from kdaprof.runs.facts import Fact
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.results import CellResult, RunResults


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: as recorded and as derived."""

    record: CellRecord
    result: CellResult

    @property
    def key(self) -> CellKey:
        """The cell's key."""
        return self.record.key

    def fact(self, name: str) -> Fact | None:
        """A figure of this cell; None when its mode has no such figure."""
        return self.result.facts.get(name)


@dataclass(frozen=True, slots=True)
class Pair:
    """The same call, eager and captured; either may not have been asked for."""

    eager: Cell | None
    graph: Cell | None

    @property
    def key(self) -> CellKey:
        """The key of the pair's first cell."""
        cell = self.eager or self.graph
        if cell is None:
            raise ValueError("a pair holds at least one cell")
        return cell.key

    def fact(self, mode: str, name: str) -> Fact | None:
        """A figure of one side; None when that side was not asked for."""
        cell = self.graph if mode == "graph" else self.eager
        return cell.fact(name) if cell else None


def cells_of(record: RunRecord, results: RunResults) -> tuple[Cell, ...]:
    """Every cell of the run, in its order; a cell without results has all its figures missing."""
    derived = {cell.id: cell for cell in results.cells}
    return tuple(Cell(cell, derived.get(cell.id) or not_derived(cell)) for cell in record.cells)


def pairs_of(cells: Sequence[Cell]) -> tuple[Pair, ...]:
    """Cells paired by mode, in the order of their first appearance."""
    sides: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        sides.setdefault(cell.key.sibling(mode="eager").id, {})[cell.key.mode] = cell
    return tuple(Pair(side.get("eager"), side.get("graph")) for side in sides.values())


@dataclass(frozen=True, slots=True)
class Naming:
    """Which parts of a key name a cell here (`columns`), and what all cells have in common (`common`)."""

    columns: tuple[tuple[str, Callable[[CellKey], str]], ...]
    common: str

    def name(self, key: CellKey, *, mode: bool = False) -> str:
        """`fused fwd`, with whatever else tells cells of this run apart."""
        words = [get(key) for _, get in self.columns]
        return " ".join([*words, key.mode] if mode and key.mode != "eager" else words)


def naming(cells: Sequence[Cell]) -> Naming:
    """Path and phase always name a cell; workload, context, shape and dtype only where they differ."""
    getters: dict[str, Callable[[CellKey], str]] = {
        "workload": lambda key: key.workload,
        "path": lambda key: key.path,
        "phase": lambda key: key.phase,
        "context": lambda key: key.context,
        "shape": shape_text,
        "dtype": lambda key: key.dtype,
    }
    seen = {name: {get(cell.key) for cell in cells} for name, get in getters.items()}
    told = {name for name in getters if name in {"path", "phase"} or len(seen[name]) > 1}
    same = [next(iter(seen[name])) for name in getters if name not in told and seen[name] and seen[name] != {"plain"}]
    return Naming(tuple((name, get) for name, get in getters.items() if name in told), " · ".join(same))


def shape_text(key: CellKey, axes: Collection[str] | None = None) -> str:
    """`B 10, T 512, H 12, K 64, V 64, C 16`; of these `axes` alone, if any are given."""
    return ", ".join(f"{axis} {size}" for axis, size in key.shape if axes is None or axis in axes)
