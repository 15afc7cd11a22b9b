"""The part of `kdaprof ab` that measures: the real hands, the target folder, and what is written into it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from kdaprof.analysis.ab.contract import Contract, Shape, StageShare
from kdaprof.analysis.ab.document import ab_document
from kdaprof.analysis.ab.evidence import ShapeEvidence
from kdaprof.analysis.ab.result import Result
from kdaprof.analysis.ab.stages import LoadRun, judge_stage_share
from kdaprof.analysis.ab.stored import EVIDENCE_FILE, write_evidence
from kdaprof.analysis.recompute import recompute
from kdaprof.cli.alone import alone_on, card_of
from kdaprof.cli.console import err_console
from kdaprof.cli.stopping import stoppable
from kdaprof.errors import UsageError
from kdaprof.probe.ab.attempts import read_attempts, stop_rule
from kdaprof.probe.ab.experiment import run_experiment
from kdaprof.probe.ab.machine import Machine, this_machine
from kdaprof.probe.ab.order import Hands, Order
from kdaprof.probe.ab.path_runs import RUNS_FOLDER, evidence_of_run, path_request
from kdaprof.probe.ab.process import run_command
from kdaprof.probe.ab.target import worker
from kdaprof.probe.ab.target_call import is_target
from kdaprof.probe.ab.worktrees import commit_of
from kdaprof.report.ab import experiment_markdown
from kdaprof.report.progress import Silent
from kdaprof.runs.atomic import write_bytes, write_text
from kdaprof.runs.codec import dumps
from kdaprof.runs.ids import new_run_id
from kdaprof.runs.older import make_way
from kdaprof.runs.store import REPORT_FILE, open_target

CONTRACT_FILE, DOCUMENT_FILE = "contract.toml", "ab.json"
LOGS = ("correctness-*.log", "base.log", "base-*.log", "cand.log", "cand-*.log")


def measured(
    contract: Contract,
    path: Path,
    sides: tuple[str, str],
    out: Path | None,
    store: Path,
    command: Sequence[str],
    *,
    force: bool,
    wait_s: float = 0.0,
) -> Result:
    """Run the experiment; its folder is complete when this returns, whatever came out.

    Errors: UsageError, TargetError, and BadFileError for what is stored and needed, before anything is measured or
    makes way; UnavailableError without the device, CardInUseError when another run still measures on it after `wait_s`
    seconds.
    """
    folder = out or Path("runs") / new_run_id(f"ab-{contract.name}")
    order = Order(
        contract=contract,
        folder=path.resolve().parent,
        base=sides[0],
        cand=sides[1],
        out=folder,
        store=store,
        command=tuple(command),
    )
    load = cache(recompute)  # once for a run that a gate needs, however often it is asked for
    _check_sides(order)
    _check_stored(order, load)
    machine = this_machine(contract.measure.device)
    with alone_on(card_of(machine.device), command=" ".join(command), wait_s=wait_s):
        return _measured(order, machine, path, load, force=force)


def _measured(order: Order, machine: Machine, path: Path, load: LoadRun, *, force: bool) -> Result:
    folder = order.out
    open_target(folder, force=force)
    _forget_older(order)
    write_bytes(folder / CONTRACT_FILE, path.read_bytes())
    hands = Hands(
        machine=machine,
        run=run_command,
        worker=worker,
        probe=probe_shape,
        load=load,
        unix_ns=time.time_ns,
        progress=_Lines(),
    )
    with stoppable():
        result, evidence = run_experiment(order, hands)
    if evidence is not None:
        write_evidence(folder, evidence)
    write_bytes(folder / DOCUMENT_FILE, dumps(ab_document(result, command=order.command)))
    write_text(folder / REPORT_FILE, experiment_markdown(result))
    err_console().print(f"results in {folder}", soft_wrap=True)
    return result


def _check_sides(order: Order) -> None:
    """Raise UsageError for sides that are none, before the folder is made, or what is in it makes way."""
    contract = order.contract
    if contract.kind == "paths":
        for shape in contract.shapes:
            path_request(order, shape)
    for name in order.sides:
        if contract.kind == "targets" and not is_target(name):
            raise UsageError(f'{name!r}: a side of kind "targets" is a package.module:make_step')
        if contract.repository is not None:
            commit_of((order.folder / contract.repository.path).resolve(), name)


def _check_stored(order: Order, load: LoadRun) -> None:
    """Read what the experiment will need, before the folder is made, or what is in it makes way.

    Errors: BadFileError for an earlier attempt or a gate's run that cannot be read; UsageError when the contract
    changed since its first attempt.
    """
    stop_rule(order.contract, read_attempts(order.store, order.contract.name))
    for gate in order.contract.gates:
        if isinstance(gate, StageShare):
            judge_stage_share(gate, order.folder, load)


def _forget_older(order: Order) -> None:
    """Take away what an older experiment left: evidence and verdict, logs (they are added to), runs of these shapes."""
    logs = (log for name in LOGS for log in (order.out / "logs").glob(name))
    make_way(order.out / EVIDENCE_FILE, order.out / DOCUMENT_FILE, *logs)
    for shape in order.contract.shapes:
        run = order.out / RUNS_FOLDER / shape.name
        if run.is_dir():
            open_target(run, force=True)


def probe_shape(order: Order, shape: Shape) -> ShapeEvidence:
    """Probe both paths on one shape into the experiment's folder. Errors: KeyboardInterrupt, as the probe's end."""
    from kdaprof.instruments.cuda_device import open_device
    from kdaprof.probe.real import real_lab
    from kdaprof.probe.session import run_probe

    request = path_request(order, shape)
    device = open_device(request.device)
    plan = request.plan("cpu" if device.kind == "cpu" else f"cuda:{device.index}")
    outcome = run_probe(plan, real_lab(plan, Silent()))
    if outcome.interrupted:
        raise KeyboardInterrupt
    return evidence_of_run(shape.name, outcome.path, order.sides, order.contract.op.phase)


class _Lines:
    """A line on stderr for each step: an experiment takes minutes, and each line is worth keeping in a log."""

    def advance(self, text: str) -> None:
        """One more step is done."""
        with suppress(OSError):
            err_console().print(text, style="dim", soft_wrap=True)
