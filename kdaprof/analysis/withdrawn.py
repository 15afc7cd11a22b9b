"""A run as it stands after what was retracted: figures struck, and findings that no longer lean on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from kdaprof.analysis.derive import judged_views, results_of
from kdaprof.analysis.view import RawRun
from kdaprof.runs.facts import Fact, fact_id
from kdaprof.runs.results import Finding, RunResults
from kdaprof.runs.retractions import Fall, Retraction, fallen

FINDING = "retracted"


def falls_in(
    results: RunResults, retractions: Iterable[Retraction], beyond: Mapping[str, tuple[str, ...]]
) -> dict[str, Fall]:
    """Which figures of this run do not stand, by fact id. `beyond` holds the sources of other runs' figures."""
    own = {
        fact_id(results.run, cell.id, name): fact.sources
        for cell in results.cells
        for name, fact in cell.facts.items()
        if fact.value is not None
    }
    return {place: fall for place, fall in fallen(retractions, {**beyond, **own}).items() if place in own}


def derive_standing(
    raw: RawRun,
    results: RunResults,
    retractions: Iterable[Retraction],
    beyond: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> RunResults:
    """The run's results with everything struck that a retraction reaches; `results` themselves where none does.

    Findings are found again, as they cite only what stands, and each retraction that reaches the run is one itself.
    """
    falls = falls_in(results, retractions, beyond)
    if not falls:
        return results
    run = raw.record.run
    views = judged_views(raw)
    standing = tuple(replace(view, facts=_struck(view.facts, f"{run}/{view.cell.id}", falls)) for view in views)
    again = results_of(raw, standing)
    return replace(again, findings=(*_findings(run, falls), *again.findings))


def struck(fact: Fact, fall: Fall | None) -> Fact:
    """The figure, refused before every other reason where a retraction reaches it."""
    return fact if fall is None else replace(fact, quotable=False, reasons=(fall.reason, *fact.reasons))


def _struck(facts: Mapping[str, Fact], cell: str, falls: Mapping[str, Fall]) -> dict[str, Fact]:
    return {name: struck(fact, falls.get(f"{cell}/{name}")) for name, fact in facts.items()}


def _findings(run: str, falls: Mapping[str, Fall]) -> Iterator[Finding]:
    """One an entry, with how much it takes away."""
    by_root: dict[str, list[str]] = {}
    for place, fall in falls.items():
        by_root.setdefault(fall.root.text, []).append(place.removeprefix(f"{run}/").rpartition("/")[0])
    for text, cells in by_root.items():
        yield Finding(
            id=FINDING,
            severity="error",
            cell=cells[0] if len(set(cells)) == 1 else None,
            text=f"{len(cells)} {'figure does' if len(cells) == 1 else 'figures do'} not stand: {text}",
            evidence={"figures": len(cells), "cells": len(set(cells))},
            next="Cite none of them; `kdaprof history --quotable` shows what still stands.",
        )
