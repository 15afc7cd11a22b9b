"""What a sweep's run directory holds beside the run's own files, all made from its figures."""

from __future__ import annotations

from kdaprof.analysis.step.sweep import Sweep
from kdaprof.report.sweep import not_measured, sweep_document, sweep_lines, sweep_markdown, sweep_svg, sweep_title
from kdaprof.runs.codec import dumps
from kdaprof.runs.record import RunRecord
from kdaprof.runs.store import SWEEP_FILES

DOCUMENT, PAGE, PICTURE = SWEEP_FILES


def sweep_files(record: RunRecord, sweep: Sweep) -> dict[str, str]:
    """Text by file name: the document, the page and the picture."""
    return {
        DOCUMENT: dumps(sweep_document(record, sweep.over, sweep.points, sweep.fits, sweep.turns)).decode(),
        PAGE: sweep_page(record, sweep),
        PICTURE: sweep_svg(sweep.over, sweep.points, sweep.fits),
    }


def sweep_page(record: RunRecord, sweep: Sweep) -> str:
    """The sweep as Markdown."""
    return sweep_markdown(sweep.over, sweep.points, sweep.fits, sweep.turns, not_measured(record))


def sweep_section(record: RunRecord, sweep: Sweep) -> list[str]:
    """The same as a section of the run's report."""
    body = sweep_lines(sweep.over, sweep.points, sweep.fits, sweep.turns, not_measured(record))
    return [f"## {sweep_title(sweep.over)}", "", *body]
