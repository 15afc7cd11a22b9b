"""The gate before any work: do the stages that would be replaced hold enough of the whole? Amdahl's limit, pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from kdaprof.analysis.ab.contract import StageShare
from kdaprof.analysis.ab.outcome import GateResult, Verdict
from kdaprof.runs.results import RunResults
from kdaprof.runs.units import format_fraction

LoadRun = Callable[[Path], RunResults]


def amdahl(share: float, removable: float = 1.0) -> float:
    """The most that the whole can be sped up by when `removable` of a `share` of it takes no time any more."""
    left = 1 - share * removable
    return float("inf") if left <= 0 else 1 / left


def judge_stage_share(gate: StageShare, folder: Path, load: LoadRun) -> GateResult:
    """The verdict on one stage share; `load` derives a stored run, whose path counts from the contract's `folder`.

    Errors: those of `load` for a run that cannot be read.
    """
    share, told = (gate.share, f"declared: {gate.source}") if gate.run is None else _measured(gate, folder, load)
    want = f"≥ {format_fraction(gate.min)} of the whole"
    if gate.bound is not None:
        want += f", and a limit of ≥ {gate.bound:.4g} ×"
    name = gate.name or "stage-share"
    if share is None:
        return GateResult(name=name, kind="stage-share", want=want, got=told, verdict="not-established", limit=gate.min)
    limit = amdahl(share, gate.removable)
    passed = share >= gate.min and (gate.bound is None or limit >= gate.bound)
    verdict: Verdict = "pass" if passed else "fail"
    got = f"{100 * share:.4g} % ({told}), which allows at most {limit:.4g} ×"
    return GateResult(name=name, kind="stage-share", want=want, got=got, verdict=verdict, value=share, limit=gate.min)


def _measured(gate: StageShare, folder: Path, load: LoadRun) -> tuple[float | None, str]:
    """The share of the named stages in a stored cell's wall; None and why."""
    results = load(folder / str(gate.run))
    cell = next((cell for cell in results.cells if cell.id == gate.cell), None)
    if cell is None:
        return None, f"{gate.run} has no cell {gate.cell}"
    if not cell.stages:
        return None, f"{gate.cell} has no stages in {gate.run}: it was not profiled"
    chosen = [stage for stage in cell.stages if any(re.fullmatch(pattern, stage.name) for pattern in gate.stages)]
    if not chosen:
        names = ", ".join(stage.name for stage in cell.stages)
        return None, f"no stage of {gate.cell} is named {' or '.join(gate.stages)}; there are: {names}"
    named = ", ".join(stage.name for stage in chosen)
    shares = [stage.share for stage in chosen if stage.share is not None]
    if len(shares) < len(chosen):
        return None, f"{named}: the call's wall is missing in run {results.run}"
    return sum(shares), f"{named} of the call's wall in run {results.run}"
