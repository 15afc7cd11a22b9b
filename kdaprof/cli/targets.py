"""From what a user types to a run, a cell or a figure: a directory, an id, or both, and the nearest where none fits."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from kdaprof.errors import BadFileError, UsageError
from kdaprof.runs.codec import read_document
from kdaprof.runs.history_rows import Entry
from kdaprof.runs.record import RunRecord
from kdaprof.runs.store import RUN_FILE, read_results

SEARCHED = ("runs", "reports")
"""Folders of the working directory in which a run is looked for by its id."""

_SUGGESTIONS = 3


@dataclass(frozen=True, slots=True)
class Target:
    """A run (its id, and its directory where it is at hand) and the place in it: `""`, a cell, or a cell's fact."""

    run: str
    directory: Path | None
    place: str

    @property
    def id(self) -> str:
        """The whole id."""
        return f"{self.run}/{self.place}" if self.place else self.run


def find_target(text: str, history: tuple[Entry, ...], directory: Path | None = None) -> Target:
    """The target that `text` names, inside `directory` where one is given, checked against what the run holds.

    Errors: UsageError with the nearest ids when there is no such run, cell or figure; BadFileError when `directory`
    holds no run.
    """
    target = _in_directory(text, directory) if directory is not None else _anywhere(text, history)
    if not target.place:
        return target
    known = _places(target, history)
    if target.place not in known:
        raise UsageError(f"{target.run} holds no {target.place}{_near(target.place, known)}")
    return target


def find_run(text: str, history: tuple[Entry, ...]) -> Target:
    """The run that `text`, a directory or an id, names. Errors as `find_target`."""
    target = find_target(text, history)
    if target.place:
        raise UsageError(f"{text}: a run is wanted here, not a part of one")
    return target


def _in_directory(text: str, directory: Path) -> Target:
    run = _run_id(directory)
    return Target(run, directory, text.removeprefix(run).strip("/"))


def _anywhere(text: str, history: tuple[Entry, ...]) -> Target:
    parts = text.split("/")
    for count in range(len(parts), 0, -1):
        folder = Path("/".join(parts[:count]) or "/")
        if (folder / RUN_FILE).is_file():
            return Target(_run_id(folder), folder, "/".join(parts[count:]).strip("/"))
    run, _, place = text.partition("/")
    nearby = _nearby()
    if run in nearby:
        return Target(run, nearby[run], place.strip("/"))
    recorded = {entry.stamp.run: entry.stamp.directory for entry in history}
    if run in recorded:
        stated = recorded[run]
        directory = Path(stated) if stated is not None and (Path(stated) / RUN_FILE).is_file() else None
        return Target(run, directory, place.strip("/"))
    if Path(text).is_dir():
        raise BadFileError(f"{text}: holds no {RUN_FILE}; a run directory is wanted, or the id of a run")
    raise UsageError(f"{text}: no such run{_near(run, {*nearby, *recorded})}")


def _run_id(folder: Path) -> str:
    return read_document(folder / RUN_FILE, "run-record", RunRecord).run


def _nearby() -> dict[str, Path]:
    """Runs of the working directory by their id."""
    found: dict[str, Path] = {}
    for name in SEARCHED:
        for file in sorted(Path(name).glob(f"*/{RUN_FILE}")):
            try:
                found.setdefault(_run_id(file.parent), file.parent)
            except BadFileError:
                continue  # another run's damage is not what was asked about
    return found


def _places(target: Target, history: tuple[Entry, ...]) -> set[str]:
    """Every cell, figure and ceiling of the run, as it is stored or as the history knows it."""
    known: set[str] = set()
    if target.directory is not None:
        record = read_document(target.directory / RUN_FILE, "run-record", RunRecord)
        known |= {f"ceilings/{ceiling.name}" for ceiling in record.ceilings}
        for cell in read_results(target.directory).cells:
            known |= {cell.id, *(f"{cell.id}/{name}" for name in cell.facts)}
    for entry in history:
        if entry.stamp.run == target.run:
            known |= {entry.cell, f"{entry.cell}/{entry.name}"}
    return known


def _near(wanted: str, known: set[str]) -> str:
    near = difflib.get_close_matches(wanted, sorted(known), n=_SUGGESTIONS, cutoff=0.5)
    if near:
        return f"; near it: {', '.join(near)}"
    return "; `kdaprof history` lists what is recorded" if known else "; give its directory, as `probe --out` made it"
