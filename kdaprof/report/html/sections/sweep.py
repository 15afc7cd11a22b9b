"""A sweep: the line through its sizes, where the step turns from the host to the GPU, and both as a picture."""

from __future__ import annotations

from kdaprof.analysis.step.sweep import sweep_of
from kdaprof.report.html.charts.line import line
from kdaprof.report.html.grids import plain_grid
from kdaprof.report.html.model import Block, Prose, Section, Subject
from kdaprof.report.sweep import fit_table, line_text, said, sweep_title


def sweep(subject: Subject) -> Section | None:
    """None for a run that is no sweep."""
    found = sweep_of(subject.scene.record, subject.scene.results)
    if found is None:
        return None
    headers, rows = fit_table(found)
    blocks: list[Block] = []
    sentences = said(found)
    if sentences:
        blocks.append(Prose(tuple(sentences)))
    blocks.append(plain_grid("sweep-table", line_text(found), headers, rows, right=range(2, 6), row_heads=2))
    picture = line(found)
    if picture is not None:
        blocks.append(picture)
    return Section(
        "sweep",
        sweep_title(found),
        tuple(blocks),
        "What a step costs whatever its size, and what more of it costs.",
    )
