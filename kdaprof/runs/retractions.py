"""What was withdrawn, why, and by what it is superseded: one file an entry, written once and never edited.

A retraction names an id: a run, `<run>/<cell>` or `<run>/<cell>/<fact>` (a ceiling is `<run>/ceilings/<name>`). It
reaches everything below that id, and every derived figure whose `sources` lead there, in whichever run it stands.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kdaprof.runs.codec import read_document, to_json, write_document
from kdaprof.runs.facts import Reason
from kdaprof.runs.place import RETRACTIONS_FOLDER

RULE = "retracted"
"""Stands where a rule's id stands in the reasons of a figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraction:
    """One entry: the id withdrawn, why, when, and the run that stands in its place, if one does."""

    target: str
    why: str
    retracted_unix_ns: int
    superseded_by: str | None = None
    tool: str = ""

    def covers(self, place: str) -> bool:
        """Whether `place` is the id withdrawn, or lies below it."""
        return place == self.target or place.startswith(f"{self.target}/")

    @property
    def text(self) -> str:
        """`both ends are step 0; withdrawn 2026-09-29, superseded by RUN`."""
        day = datetime.fromtimestamp(self.retracted_unix_ns / 1e9, UTC).strftime("%Y-%m-%d")
        instead = f", superseded by {self.superseded_by}" if self.superseded_by else ""
        return f"{self.why}; withdrawn {day}{instead}"


def add_retraction(store: Path, retraction: Retraction) -> Path:
    """Put one entry into the store, as a file of its own whose name no other writer takes; returns where."""
    moment = datetime.fromtimestamp(retraction.retracted_unix_ns / 1e9, UTC).strftime("%Y%m%dT%H%M%SZ")
    path = store / RETRACTIONS_FOLDER / f"{moment}-{secrets.token_hex(4)}.json"
    write_document(path, "retraction", to_json(retraction))
    return path


def read_retractions(store: Path) -> tuple[Retraction, ...]:
    """All entries, oldest first; () for a store without any.

    Errors: BadFileError naming the file that is damaged, or newer than this kdaprof: a retraction that cannot be
    read must not be taken for none.
    """
    files = sorted((store / RETRACTIONS_FOLDER).glob("[!.]*.json"))
    found = [read_document(path, "retraction", Retraction) for path in files]
    return tuple(sorted(found, key=lambda entry: entry.retracted_unix_ns))


@dataclass(frozen=True, slots=True)
class Fall:
    """Why a figure does not stand: the reason as it is shown beside it, and the entry at its root."""

    reason: Reason
    root: Retraction


def fallen(retractions: Iterable[Retraction], sources: Mapping[str, Iterable[str]]) -> dict[str, Fall]:
    """Every figure that does not stand, by fact id, with why.

    `sources` maps each known fact id to the ids that it was made from (none for a measured one), over as many runs
    as are known. The first entry that reaches a figure gives its reason; a cycle of sources ends where it began.
    """
    entries = tuple(retractions)
    known: dict[str, Fall | None] = {}
    for place in sources if entries else ():
        _fall(place, entries, sources, known)
    return {place: fall for place, fall in known.items() if fall is not None and place in sources}


def _fall(
    place: str, entries: tuple[Retraction, ...], sources: Mapping[str, Iterable[str]], known: dict[str, Fall | None]
) -> Fall | None:
    if place in known:
        return known[place]
    direct = next((entry for entry in entries if entry.covers(place)), None)
    known[place] = Fall(Reason(rule=RULE, text=direct.text), direct) if direct else None
    if direct is None:
        for source in sources.get(place, ()):
            below = _fall(source, entries, sources, known)
            if below is not None:
                known[place] = Fall(Reason(rule=RULE, text=_through(place, source, below.root)), below.root)
                break
    return known[place]


def _through(place: str, source: str, root: Retraction) -> str:
    """The root's words behind the figure between, named by its fact alone where it is of the same run."""
    same_run = place.split("/", 1)[0] == source.split("/", 1)[0]
    return f"through {source.rsplit('/', 1)[-1] if same_run else source}: {root.text}"
