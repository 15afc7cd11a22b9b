"""The README's picture: what `kdaprof report RUN` prints, as an SVG. `python probes/picture.py RUN OUT.svg`."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from kdaprof.analysis.recompute import recompute
from kdaprof.report.terminal import show_run
from kdaprof.runs.store import read_run

WIDTH = 100
WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # the picture fetches nothing


def picture(run: Path) -> str:
    """The terminal view of a stored run as SVG text."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    show_run(console, read_run(run).record, recompute(run))
    return WEB_FONT.sub("", console.export_svg(title=f"kdaprof report {run}", theme=MONOKAI))


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    target.write_text(picture(source))
