"""Which calls share a table on a terminal: all phases of one call, or all sizes where there is one phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdaprof.report.pairs import Pair, shape_text
from kdaprof.report.scene import Scene
from kdaprof.runs.cells import CellKey


@dataclass(frozen=True, slots=True)
class Group:
    """Calls of one table: what they have in common (`name`), and what tells each apart (`across`)."""

    name: str
    pairs: tuple[Pair, ...]
    across: tuple[str, ...]


def groups_of(scene: Scene, pairs: Sequence[Pair]) -> list[Group]:
    """The pairs in the order of the run. Sizes stand across only where no group would hold a second phase."""
    sizes = len({pair.key.phase for pair in pairs}) == 1 and len({pair.key.shape for pair in pairs}) > 1
    aside = "shape" if sizes else "phase"
    columns = [(name, get) for name, get in scene.naming.columns if name != aside]
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(" ".join(get(pair.key) for _, get in columns), []).append(pair)
    if not sizes:
        return [Group(name, tuple(some), tuple(pair.key.phase for pair in some)) for name, some in found.items()]
    vary, same = _axes([pair.key for pair in pairs])
    groups = []
    for name, some in found.items():
        rest = shape_text(some[0].key, same)
        across = tuple(shape_text(pair.key, vary or None) for pair in some)
        groups.append(Group(f"{name}, {rest}" if rest else name, tuple(some), across))
    return groups


def _axes(keys: Sequence[CellKey]) -> tuple[list[str], list[str]]:
    """The axes that differ, and those that do not; none where the shapes are not of the same axes."""
    axes = [axis for axis, _ in keys[0].shape]
    if any([axis for axis, _ in key.shape] != axes for key in keys):
        return [], []
    vary = [axis for axis in axes if len({key.size(axis) for key in keys}) > 1]
    return vary, [axis for axis in axes if axis not in vary]
