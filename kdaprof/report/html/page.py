"""report.html: a run on one page that stands alone, in the order of what a reader needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kdaprof.analysis.view import RawRun
from kdaprof.report.html.model import Page, Section, Subject
from kdaprof.report.html.sections import figures, machine, proof, summary
from kdaprof.report.html.sections.timeline import timeline
from kdaprof.report.markdown import title
from kdaprof.report.pairs import cells_of, naming, pairs_of
from kdaprof.report.scene import Scene
from kdaprof.report.units import utc
from kdaprof.runs.results import RunResults

MARK = "<!-- kdaprof report -->"
"""Stands in the first line of every page, so that a page may be written over another and over nothing else."""

SECTIONS: tuple[Callable[[Subject], Section | None], ...] = (
    summary.verdict,
    summary.corrections,
    summary.conditions,
    summary.findings,
    figures.main,
    figures.eager_to_floor,
    figures.idle,
    timeline,
    figures.samples,
    figures.watched,
    figures.allocator,
    figures.roof,
    figures.stages,
    figures.peers,
    figures.more,
    proof.evidence,
    proof.refusals,
    proof.rules,
    proof.every_figure,
    machine.taken,
    machine.environment,
)


def subject_of(raw: RawRun, results: RunResults) -> Subject:
    """A run ready to be shown."""
    cells = cells_of(raw.record, results)
    return Subject(raw, Scene(raw.record, results, cells, pairs_of(cells), naming(cells)))


def render(raw: RawRun, results: RunResults) -> str:
    """The page of one run, from its stored parts alone: same input, same text."""
    return draw(page_of(subject_of(raw, results)))


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
