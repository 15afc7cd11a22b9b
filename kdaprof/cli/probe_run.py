"""The part of `kdaprof probe` that needs torch: run the session, derive, report, say the verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.cli.alone import alone_on, card_of
from kdaprof.cli.console import err_console, out_console, print_json
from kdaprof.cli.standing import record_finished
from kdaprof.errors import Exit
from kdaprof.instruments.cuda_device import open_device
from kdaprof.probe.plan import Request
from kdaprof.probe.real import real_lab
from kdaprof.probe.session import run_probe
from kdaprof.probe.step.plan import StepRequest
from kdaprof.report.markdown import render
from kdaprof.report.progress import BarProgress
from kdaprof.report.terminal import show_run
from kdaprof.runs.document import run_document
from kdaprof.runs.record import RunRecord
from kdaprof.runs.results import RunResults
from kdaprof.runs.store import RunWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A run that was measured, derived and written: where it lies, and the exit code it comes to."""

    path: Path
    record: RunRecord
    results: RunResults
    code: Exit


def probe_and_report(
    request: Request | StepRequest,
    *,
    as_json: bool,
    wait_s: float = 0.0,
    store: Path | None = None,
    stacks: bool = False,
) -> Exit:
    """Run the probe; the run directory is complete when this returns, whatever the exit code.

    Errors: CardInUseError when another run still measures on the card after `wait_s` seconds.
    """
    stored = measure_and_store(request, wait_s=wait_s, store=store)
    if as_json:
        print_json(run_document(stored.record, stored.results, None if request.anonymous else stored.path))
    else:
        show_run(out_console(), stored.record, stored.results, path=stored.path)
    if stacks:
        from kdaprof.cli.probe_stacks import record_paths

        device = open_device(request.device)
        where = "cpu" if device.kind == "cpu" else f"cuda:{device.index}"
        console = err_console()
        told = partial(console.print, soft_wrap=True)
        record_paths(
            stored.record, stored.path, device=where, seed=request.seed, told=told, anonymous=request.anonymous
        )
    return stored.code


def measure_and_store(request: Request | StepRequest, *, wait_s: float = 0.0, store: Path | None = None) -> Stored:
    """Measure into the run directory, derive, write facts, findings and report.md, and record them in the history.

    `store` is the folder of the history, None the project's own.

    Errors: CardInUseError when another run still measures on the card after `wait_s` seconds.
    """
    device = open_device(request.device)
    where = "cpu" if device.kind == "cpu" else f"cuda:{device.index}"
    if isinstance(request, StepRequest) and request.target is not None:
        from kdaprof.workloads.target import target_phases

        request = replace(request, target_parts=target_phases(request.target, where))
    plan = request.plan(where)
    command = " ".join(request.command[:2] if request.anonymous else request.command)
    with alone_on(card_of(device), command=command, wait_s=wait_s) as notes:
        outcome = run_probe(plan, real_lab(plan, BarProgress(err_console())))
    if notes:
        RunWriter(outcome.path).put_record(replace(outcome.record, notes=(*outcome.record.notes, *notes)))
    # Read back, so that what is shown here is what `kdaprof report` shows, interrupted cells included.
    raw = load_raw(outcome.path)
    results = derive(raw)
    writer = RunWriter(outcome.path)
    writer.put_results(results)
    writer.put_report(render(raw.record, results))
    record_finished(outcome.path, store)
    code = _exit_code(raw.record, interrupted=outcome.interrupted)
    return Stored(path=outcome.path, record=raw.record, results=results, code=code)


def _exit_code(record: RunRecord, *, interrupted: bool) -> Exit:
    """130 interrupted; 1 when a requested cell failed; 5 when nothing that was asked for can run here."""
    if interrupted:
        return Exit.INTERRUPTED
    if any(cell.status == "failed" for cell in record.cells):
        return Exit.ERROR
    if not any(cell.status == "ok" for cell in record.cells):
        return Exit.UNFIT
    return Exit.OK
