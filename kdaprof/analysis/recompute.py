"""A stored run once more: everything derived, from the samples, without measuring anything."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from kdaprof.analysis.derive import derive
from kdaprof.analysis.view import RawRun
from kdaprof.runs.codec import to_json
from kdaprof.runs.facts import Fact
from kdaprof.runs.results import CellResult, RunResults
from kdaprof.runs.store import read_run
from kdaprof.runs.util import UTIL_FILE, read_util
from kdaprof.timeline import parquet
from kdaprof.timeline.columns import Timeline

REL_TOL = 1e-9
"""Figures that differ by less are the same: another version of a mathematics library may round otherwise."""


def load_raw(path: Path) -> RawRun:
    """Read a run directory whole: record, samples, timelines, utilisation.

    Errors: BadFileError naming the file that is absent, damaged, or newer than this kdaprof.
    """
    stored = read_run(path)
    timelines: dict[tuple[str, str], Timeline] = {}
    files: dict[str, Timeline] = {}  # the phases of a loop share the recording of its steps
    for cell in stored.record.cells:
        # Of several windows of one kind the last one speaks: the loop is warmest there.
        last = {p.kind: p.timeline for p in cell.observed.profiled} if cell.observed else {}
        for kind, file in last.items():
            if file not in files:
                files[file] = parquet.read(path / file)
            timelines[cell.id, kind] = files[file]
    return RawRun(record=stored.record, samples=stored.samples, timelines=timelines, util=read_util(path / UTIL_FILE))


def recompute(path: Path) -> RunResults:
    """Facts, evidence, stages and findings of a stored run. Errors as `load_raw`."""
    return derive(load_raw(path))


def differences(stored: RunResults, again: RunResults, rel_tol: float = REL_TOL) -> tuple[str, ...]:
    """What differs between two derivations of one run, a line each; () when nothing does."""
    return tuple(_differences(stored, again, rel_tol))


def tree_differences(name: str, stored: object, again: object, rel_tol: float = REL_TOL) -> tuple[str, ...]:
    """What differs between two JSON documents called `name`, a line each; () when nothing does."""
    return tuple(_tree(name, stored, again, rel_tol))


def _differences(stored: RunResults, again: RunResults, rel_tol: float) -> Iterator[str]:
    if stored.run != again.run:
        yield f"run: {stored.run} stored, {again.run} recomputed"
    old, new = {c.id: c for c in stored.cells}, {c.id: c for c in again.cells}
    for cell_id in [*old, *(c for c in new if c not in old)]:
        if cell_id not in new or cell_id not in old:
            yield f"{cell_id}: only {'stored' if cell_id in old else 'recomputed'}"
        else:
            yield from _cell(old[cell_id], new[cell_id], rel_tol)
    yield from _tree("findings", to_json(stored.findings), to_json(again.findings), rel_tol)


def _cell(old: CellResult, new: CellResult, rel_tol: float) -> Iterator[str]:
    for name in [*old.facts, *(n for n in new.facts if n not in old.facts)]:
        mine, other = old.facts.get(name), new.facts.get(name)
        if mine is None or other is None:
            yield f"{old.id}/{name}: only {'recomputed' if mine is None else 'stored'}"
            continue
        for field in fields(Fact):
            place = f"{old.id}/{name}" if field.name == "value" else f"{old.id}/{name}.{field.name}"
            yield from _tree(place, to_json(getattr(mine, field.name)), to_json(getattr(other, field.name)), rel_tol)
    yield from _tree(f"{old.id}/evidence", to_json(old.evidence), to_json(new.evidence), rel_tol)
    yield from _tree(f"{old.id}/stages", to_json(old.stages), to_json(new.stages), rel_tol)


def _tree(place: str, old: object, new: object, rel_tol: float) -> Iterator[str]:
    """Differences of two JSON trees. Numbers within the tolerance are the same; text must be equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(k for k in new if k not in old)]:
            yield from _tree(f"{place}.{key}", old.get(key), new.get(key), rel_tol)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for number, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from _tree(f"{place}[{number}]", a, b, rel_tol)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        yield f"{place}: {len(old)} stored, {len(new)} recomputed"
        yield from (f"{place}, only stored: {one!r}" for one in _beside(old, new, rel_tol))
        yield from (f"{place}, only recomputed: {one!r}" for one in _beside(new, old, rel_tol))
    elif not _same(old, new, rel_tol):
        yield f"{place}: {old!r} stored, {new!r} recomputed"


def _beside(some: Sequence[object], others: Sequence[object], rel_tol: float) -> Iterator[object]:
    """The entries of `some` that have no like among `others`."""
    return (one for one in some if all(any(_tree("", one, other, rel_tol)) for other in others))


def _same(old: object, new: object, rel_tol: float) -> bool:
    numbers = (int, float)
    if isinstance(old, numbers) and isinstance(new, numbers) and not (isinstance(old, bool) or isinstance(new, bool)):
        return math.isclose(old, new, rel_tol=rel_tol, abs_tol=1e-15)
    return old == new
