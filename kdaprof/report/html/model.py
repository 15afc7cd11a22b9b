"""What a page is made of before it is drawn: sections of blocks, all of it plain text, escaped by the template."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from kdaprof.analysis.view import RawRun
from kdaprof.report.scene import Scene


@dataclass(frozen=True, slots=True)
class Subject:
    """A run as the page sees it: raw parts for the charts, the scene for everything said."""

    raw: RawRun
    scene: Scene
    events: int = 16_000
    """How many events the timelines may show in all: the page stays small enough to send."""


@dataclass(frozen=True, slots=True)
class Spot:
    """One place of a table. `raw` is the value in base units, for the CSV; `fact` names its row in "Every figure".

    `rules` refuse the figure, which is then struck out; `missing` is the reason for one that is not there. `share`
    (0…1) draws a bar behind the figure. `spread` is its interval or range in brackets, said more softly.
    """

    text: str
    raw: str = ""
    fact: str = ""
    rules: tuple[str, ...] = ()
    missing: str = ""
    tone: str = ""
    share: float | None = None
    href: str = ""
    spread: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """A column: header, the name it has in the CSV, its side, and what the figure is."""

    text: str
    name: str = ""
    right: bool = True
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table that copies as text and downloads as CSV. `breaks` are rows before which a group begins.

    `stacked` puts intervals below their figures, for a table with many of them.
    """

    id: str
    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Spot, ...], ...]
    notes: tuple[str, ...] = ()
    row_heads: int = 1
    breaks: frozenset[int] = frozenset()
    row_ids: tuple[str, ...] = ()
    stacked: bool = False
    kind: ClassVar[str] = "grid"


@dataclass(frozen=True, slots=True)
class Prose:
    """Paragraphs; `tone` is `good`, `warn`, `bad` or nothing."""

    paragraphs: tuple[str, ...]
    tone: str = ""
    kind: ClassVar[str] = "prose"


@dataclass(frozen=True, slots=True)
class Item:
    """A line with a head in bold: a sentence of the verdict, a finding."""

    head: str
    text: str
    tone: str = ""
    badge: str = ""
    more: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    id: str = ""
    also: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    """Opens on demand: the numbers behind the sentence."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list of items; `large` for what a reader must see first."""

    items: tuple[Item, ...]
    large: bool = False
    kind: ClassVar[str] = "items"


@dataclass(frozen=True, slots=True)
class Tiles:
    """Short facts side by side: (label, value, tone)."""

    tiles: tuple[tuple[str, str, str], ...]
    kind: ClassVar[str] = "tiles"


@dataclass(frozen=True, slots=True)
class Chart:
    """A plotly figure as JSON text, the same for the same run; `says` is what it shows, for those who cannot see it."""

    id: str
    title: str
    says: str
    figure: str
    height: int
    kind: ClassVar[str] = "chart"


@dataclass(frozen=True, slots=True)
class TimelineChart:
    """Calls that can be looked at event by event; `data` is drawn in the browser, one call at a time."""

    id: str
    title: str
    says: str
    names: tuple[str, ...]
    data: dict[str, Any]
    height: int
    kind: ClassVar[str] = "timeline"


@dataclass(frozen=True, slots=True)
class Folded:
    """Tables that open on demand: (summary, table)."""

    parts: tuple[tuple[str, Grid], ...]
    all_csv: str = ""
    kind: ClassVar[str] = "folded"


Block: TypeAlias = Grid | Prose | Items | Tiles | Chart | TimelineChart | Folded


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page under its own heading and link; `lead` says what is looked at."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    lead: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the template fills in."""

    title: str
    subtitle: str
    facts: tuple[str, ...]
    sections: tuple[Section, ...]
    rule_titles: dict[str, str] = field(default_factory=dict)
