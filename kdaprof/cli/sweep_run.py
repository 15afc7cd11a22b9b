"""The part of `kdaprof sweep` that needs torch: the run, its lines, and the files that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kdaprof.analysis.step.fit import Fit, fits_of, points_of, turns_of
from kdaprof.cli.console import out_console, print_json
from kdaprof.cli.probe_run import measure_and_store
from kdaprof.errors import Exit
from kdaprof.probe.step.plan import StepRequest
from kdaprof.report.sweep import not_measured, sweep_document, sweep_markdown, sweep_svg
from kdaprof.runs.atomic import write_text
from kdaprof.runs.codec import dumps


def sweep_and_report(
    request: StepRequest, over: tuple[str, ...], *, as_json: bool, wait_s: float = 0.0, store: Path | None = None
) -> Exit:
    """Run the sweep; the run directory holds sweep.json, sweep.md and sweep.svg when this returns."""
    stored = measure_and_store(request, wait_s=wait_s, store=store)
    points = points_of(stored.record, stored.results, over)
    fits, turns = fits_of(stored.record.run, points), turns_of(points)
    document = sweep_document(stored.record, over, points, fits, turns)
    text = sweep_markdown(over, points, fits, turns, not_measured(stored.record))
    write_text(stored.path / "sweep.json", dumps(document).decode())
    write_text(stored.path / "sweep.md", text)
    write_text(stored.path / "sweep.svg", sweep_svg(over, points, fits))
    if as_json:
        print_json(document)
    else:
        out_console().print(text, soft_wrap=True)
        out_console().print(f"run directory  {stored.path}", soft_wrap=True)
    return ending(stored.code, fits)


def ending(code: Exit, fits: Sequence[Fit]) -> Exit:
    """The run's own code, and of one that went well INCONCLUSIVE where no path and mode has a line, refused or not."""
    lines = any(fit.fixed.value is not None for fit in fits)
    return Exit.INCONCLUSIVE if code is Exit.OK and not lines else code
