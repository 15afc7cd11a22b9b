"""The part of `kdaprof sweep` that needs torch: the run, its lines, and the files that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kdaprof.analysis.step.fit import Fit
from kdaprof.analysis.step.sweep import sweep_of
from kdaprof.cli.console import out_console, print_json
from kdaprof.cli.probe_run import measure_and_store
from kdaprof.errors import Exit
from kdaprof.probe.step.plan import StepRequest
from kdaprof.report.sweep import sweep_document, sweep_markdown
from kdaprof.report.sweep_files import sweep_files
from kdaprof.runs.atomic import write_text


def sweep_and_report(request: StepRequest, *, as_json: bool, wait_s: float = 0.0, store: Path | None = None) -> Exit:
    """Run the sweep; the run directory holds sweep.json, sweep.md and sweep.svg when this returns."""
    stored = measure_and_store(request, wait_s=wait_s, store=store)
    sweep = sweep_of(stored.record, stored.results)
    assert sweep is not None  # the request is one
    for name, text in sweep_files(stored.record, sweep).items():
        write_text(stored.path / name, text)
    if as_json:
        print_json(sweep_document(stored.record, sweep))
    else:
        out_console().print(sweep_markdown(sweep), soft_wrap=True)
        out_console().print(f"run directory  {stored.path}", soft_wrap=True)
    return ending(stored.code, sweep.fits)


def ending(code: Exit, fits: Sequence[Fit]) -> Exit:
    """The run's own code, and of one that went well INCONCLUSIVE where no path and mode has a line, refused or not."""
    lines = any(fit.fixed.value is not None for fit in fits)
    return Exit.INCONCLUSIVE if code is Exit.OK and not lines else code
