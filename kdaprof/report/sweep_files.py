"""What a sweep's run directory holds beside the run's own files, all made from its figures."""

from __future__ import annotations

from kdaprof.analysis.step.sweep import Sweep
from kdaprof.report.sweep import sweep_document, sweep_markdown, sweep_svg
from kdaprof.runs.codec import dumps
from kdaprof.runs.record import RunRecord
from kdaprof.runs.store import SWEEP_FILES

DOCUMENT, PAGE, PICTURE = SWEEP_FILES


def sweep_files(record: RunRecord, sweep: Sweep) -> dict[str, str]:
    """Text by file name: the document, the page and the picture."""
    return {
        DOCUMENT: dumps(sweep_document(record, sweep)).decode(),
        PAGE: sweep_markdown(sweep),
        PICTURE: sweep_svg(sweep),
    }
