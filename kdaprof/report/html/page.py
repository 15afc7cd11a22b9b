"""report.html: a run on one page that stands alone, in the order of what a reader needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from kdaprof.analysis.view import RawRun
from kdaprof.report.html.comparison import comparison
from kdaprof.report.html.model import Page, Section, Subject
from kdaprof.report.html.sections import figures, machine, proof, step, summary
from kdaprof.report.html.sections.sweep import sweep
from kdaprof.report.html.sections.timeline import timeline
from kdaprof.report.markdown import title
from kdaprof.report.pairs import cells_of, naming, pairs_of
from kdaprof.report.scene import Scene
from kdaprof.report.units import utc
from kdaprof.runs.results import RunResults

MARK = "<!-- kdaprof report -->"
"""Stands in the first line of every page, so that a page may be written over another and over nothing else."""

LARGEST = 6_000_000
"""Bytes of a page, plotly's 4.8 million included."""
EVENTS = (16_000, 8_000, 3_000, 0)
"""How many events the timelines show: the first with which the page is small enough."""

SECTIONS: tuple[Callable[[Subject], Section | None], ...] = (
    summary.verdict,
    sweep,
    summary.corrections,
    summary.conditions,
    figures.main,
    step.by_phase,
    step.modes,
    figures.eager_to_floor,
    figures.idle,
    timeline,
    figures.samples,
    figures.watched,
    figures.allocator,
    figures.roof,
    figures.stages,
    step.levers,
    step.cold,
    step.memory,
    figures.peers,
    summary.findings,
    figures.more,
    proof.evidence,
    proof.refusals,
    proof.rules,
    proof.every_figure,
    machine.taken,
    machine.environment,
)


def subject_of(raw: RawRun, results: RunResults, events: int = EVENTS[0]) -> Subject:
    """A run ready to be shown, with at most so many events in its timelines."""
    cells = cells_of(raw.record, results)
    return Subject(raw, Scene(raw.record, results, cells, pairs_of(cells), naming(cells)), events)


def render(raw: RawRun, results: RunResults) -> str:
    """The page of one run, from its stored parts alone: same input, same text."""
    text = ""
    for events in EVENTS:
        text = draw(page_of(subject_of(raw, results, events)))
        if len(text.encode()) <= LARGEST:
            break
    return text


def render_several(runs: Sequence[tuple[RawRun, RunResults]]) -> str:
    """One page for several runs: what differs between them first, then their figures side by side."""
    return draw(comparison([subject_of(raw, results, 0) for raw, results in runs]))


def page_of(subject: Subject) -> Page:
    """What stands on the page of one run."""
    scene, record = subject.scene, subject.scene.record
    took = f", took {(record.ended_unix_ns - record.started_unix_ns) / 1e9:.0f} s" if record.ended_unix_ns else ""
    facts = (record.run, f"{utc(record.started_unix_ns)}{took}", record.tool)
    sections = tuple(section for make in SECTIONS if (section := make(subject)) is not None)
    return Page(title(scene), scene.naming.common, facts, sections, proof.rule_titles(scene.cells))


def draw(page: Page) -> str:
    """The page as HTML, with plotly's script inside; every text is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only a page needs it
    from plotly.offline import get_plotlyjs  # noqa: PLC0415

    loader = PackageLoader("kdaprof.report.html", "templates")
    env = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    env.filters["script_json"] = script_json
    env.filters["script_text"] = script_text
    return env.get_template("page.html.j2").render(page=page, plotly=get_plotlyjs(), mark=MARK)


def script_json(value: Any) -> Any:
    """JSON that cannot end the script element it stands in."""
    return script_text(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def script_text(text: str) -> Any:
    """JSON text as it may stand inside a script element: `<`, `>` and `&` as escapes."""
    from markupsafe import Markup  # noqa: PLC0415 - comes with jinja2

    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)
