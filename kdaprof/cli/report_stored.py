"""`kdaprof report --check` and `--write`: what is stored beside the samples, held against them or made anew."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from kdaprof.errors import Exit

if TYPE_CHECKING:
    from kdaprof.analysis.view import RawRun
    from kdaprof.runs.record import RunRecord
    from kdaprof.runs.results import RunResults

_FIGURES_NAMED = 20
_WIDEST = 400


@dataclass(frozen=True, slots=True)
class Shown:
    """A stored run with what follows from it."""

    path: Path
    raw: RawRun
    results: RunResults

    @property
    def record(self) -> RunRecord:
        """run.json."""
        return self.raw.record


def write(shown: Sequence[Shown]) -> None:
    """Put what follows from the samples into each run. Errors: TargetError."""
    from kdaprof.report.markdown import render
    from kdaprof.runs.atomic import write_text
    from kdaprof.runs.store import RunWriter

    for one in shown:
        writer = RunWriter(one.path)
        writer.put_results(one.results)
        writer.put_report(render(one.record, one.results))
        for name, text in _of_sweep(one).items():
            write_text(one.path / name, text)


def check(shown: Sequence[Shown], stream: TextIO) -> Exit:
    """Print for each run what does not follow from its samples; REGRESSION where there is any."""
    worst = Exit.OK
    for one in shown:
        path, results = one.path, one.results
        found = _differences(one)
        if not found:
            facts = sum(len(cell.facts) for cell in results.cells)
            sweep = ", and so does the sweep" if _of_sweep(one) else ""
            told = f"{facts} figures and {len(results.findings)} findings follow from the samples{sweep}"
            print(f"{path}: {told}", file=stream)
            continue
        worst = Exit.REGRESSION
        for text in found[:_FIGURES_NAMED]:
            print(f"{path}: {textwrap.shorten(text, _WIDEST, placeholder=' …')}", file=stream)
        if len(found) > _FIGURES_NAMED:
            print(f"{path}: and {len(found) - _FIGURES_NAMED} more differences", file=stream)
    return worst


def _differences(one: Shown) -> list[str]:
    """What is stored and does not follow from the samples: figures, findings, and the pages made of them."""
    from kdaprof.analysis.recompute import differences
    from kdaprof.report.markdown import render
    from kdaprof.runs.store import REPORT_FILE, read_results

    found = list(differences(read_results(one.path), one.results))
    if found:
        return found
    page = one.path / REPORT_FILE
    if page.is_file():
        found += _lines(REPORT_FILE, page.read_text(encoding="utf-8"), render(one.record, one.results))
    for name, text in _of_sweep(one).items():
        found += _file(one.path, name, text)
    return found


def _of_sweep(one: Shown) -> dict[str, str]:
    """The files that a sweep has beside the run's own; none of another run."""
    from kdaprof.analysis.step.sweep import sweep_of
    from kdaprof.report.sweep_files import sweep_files

    sweep = sweep_of(one.record, one.results)
    return {} if sweep is None else sweep_files(one.record, sweep)


def _file(folder: Path, name: str, again: str) -> Iterator[str]:
    from kdaprof.analysis.recompute import tree_differences

    path = folder / name
    if not path.is_file():
        yield f"{name}: not there; `kdaprof report {folder} --write` makes it"
        return
    stored = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix != ".json":
        yield from _lines(name, stored, again)
        return
    try:
        yield from tree_differences(name, json.loads(stored), json.loads(again))
    except json.JSONDecodeError as error:
        yield f"{name}: no JSON ({error}); `kdaprof report {folder} --write` makes it anew"


def _lines(name: str, stored: str, again: str) -> Iterator[str]:
    for number, (old, new) in enumerate(zip_longest(stored.splitlines(), again.splitlines()), 1):
        if old != new:
            yield f"{name} line {number}: {old!r} stored, {new!r} recomputed"
