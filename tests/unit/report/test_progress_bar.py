"""Progress: a bar on a terminal, plain lines elsewhere, nothing when silent."""

from __future__ import annotations

import io
import threading

from rich.console import Console

from kdaprof.report.progress import BarProgress, Silent, open_progress
from kdaprof.runs.progress import Progress


def drive(progress: Progress) -> None:
    progress.start(2)
    progress.advance("fused [fwd]")
    progress.note("tensor fell back: [why]")
    progress.advance("tensor fwd")
    progress.close()
    progress.close()


def test_piped_progress_is_a_line_a_part() -> None:
    stream = io.StringIO()
    drive(open_progress(stream))
    assert stream.getvalue() == "[1/2] fused [fwd]\ntensor fell back: [why]\n[2/2] tensor fwd\n"


def test_a_terminal_gets_a_bar_that_goes_away_and_starts_no_thread() -> None:
    stream = io.StringIO()
    progress = BarProgress(Console(file=stream, force_terminal=True, width=80))
    before = threading.active_count()
    progress.start(2)
    progress.advance("fused [fwd]")
    # A refresh thread would wake beside what is being timed.
    assert threading.active_count() == before
    progress.note("a note")
    progress.close()
    text = stream.getvalue()
    assert "1/2" in text
    assert "fused [fwd]" in text
    assert "a note\n" in text


def test_close_without_start_and_silence() -> None:
    stream = io.StringIO()
    open_progress(stream).close()
    drive(Silent())
    assert stream.getvalue() == ""
