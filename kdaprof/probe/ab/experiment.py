"""One experiment: what is frozen is checked first, then both sides are timed interleaved, then the gates speak."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kdaprof import __version__
from kdaprof.analysis.ab.contract import StageShare
from kdaprof.analysis.ab.evidence import Evidence
from kdaprof.analysis.ab.judge import Outcome, judge
from kdaprof.analysis.ab.outcome import GateResult
from kdaprof.analysis.ab.reading import digest
from kdaprof.analysis.ab.result import Party, Result
from kdaprof.analysis.ab.stages import judge_stage_share
from kdaprof.analysis.ab.surroundings import under_conditions
from kdaprof.errors import UsageError
from kdaprof.probe.ab.attempts import Attempt, add_attempt, read_attempts, stop_rule
from kdaprof.probe.ab.blocks import SIDES, SideName
from kdaprof.probe.ab.frozen import check_frozen
from kdaprof.probe.ab.measuring import Seen, Setting, measure
from kdaprof.probe.ab.order import Hands, Order
from kdaprof.probe.ab.target_call import is_target
from kdaprof.probe.ab.worktrees import worktrees
from kdaprof.runs.conditions import Conditions


def run_experiment(order: Order, hands: Hands) -> tuple[Result, Evidence | None]:
    """Check, measure and judge. Ctrl-C (KeyboardInterrupt) while timing ends it; what was seen is kept.

    The attempt is written to the store when its candidate was timed to the end.
    Errors: UsageError for what has no meaning; BadFileError for a stored run that a gate needs.
    """
    contract = order.contract
    past = read_attempts(order.store, contract.name)
    stop = stop_rule(contract, past)
    _check_names(order)
    started = hands.unix_ns()
    environment, before = hands.machine.environment(order.command), hands.machine.conditions()
    with _setting(order) as setting:
        seen = Seen(gates=[] if stop is None else [stop])
        complete = True
        if all(gate.verdict == "pass" for gate in seen.gates):
            try:
                _see(order, hands, setting, seen)
            except KeyboardInterrupt:
                complete = False
    evidence = seen.evidence()
    after = hands.machine.conditions() if complete and evidence is not None else None
    if evidence is not None and contract.kind != "paths":  # a probe has judged its own conditions
        evidence = under_conditions(evidence, Conditions(before, (), after))
    outcome = judge(contract, evidence, seen.gates)
    errors = () if evidence is None else evidence.errors
    result = Result(
        contract=contract,
        digest=digest(contract),
        base=setting.parties["base"],
        cand=setting.parties["cand"],
        outcome=outcome if complete else _interrupted(outcome),
        complete=complete,
        attempt=len(past) + 1,
        environment=environment,
        before=before,
        after=after,
        started_unix_ns=started,
        errors=errors,
    )
    if complete and evidence is not None and not errors:
        add_attempt(order.store, _attempt(result, hands.unix_ns()))
    return result, evidence


@contextmanager
def _setting(order: Order) -> Iterator[Setting]:
    names: dict[SideName, str] = {"base": order.base, "cand": order.cand}
    logs = order.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    repository = order.contract.repository
    if repository is None:
        folders: dict[SideName, Path] = dict.fromkeys(SIDES, order.folder)
        yield Setting(folders, {side: Party(name=name) for side, name in names.items()}, logs)
        return
    with worktrees((order.folder / repository.path).resolve(), order.sides) as (base, cand):
        trees = {"base": base, "cand": cand}
        parties: dict[SideName, Party] = {
            side: Party(name=trees[side].asked, commit=trees[side].commit) for side in SIDES
        }
        yield Setting({side: trees[side].folder for side in SIDES}, parties, logs)


def _check_names(order: Order) -> None:
    for flag, name in (("--base", order.base), ("--cand", order.cand)):
        if order.contract.kind == "targets" and not is_target(name):
            raise UsageError(f'{flag} {name!r}: kind "targets" takes package.module:make_step')


def _see(order: Order, hands: Hands, setting: Setting, seen: Seen) -> None:
    """Gates before any work, then what is frozen, then the timing; ends at the first gate that does not pass."""
    for gate in _first(order, hands, setting):
        hands.progress.advance(f"{gate.name}: {gate.verdict}")
        seen.gates.append(gate)
        if gate.verdict != "pass":
            return
    measure(order, hands, setting, seen)


def _first(order: Order, hands: Hands, setting: Setting) -> Iterator[GateResult]:
    for gate in order.contract.gates:
        if isinstance(gate, StageShare):
            yield judge_stage_share(gate, order.folder, hands.load)
    apart = order.contract.kind == "revisions"
    places = {str(side): setting.folders[side] for side in SIDES} if apart else {"contract": order.folder}
    yield from check_frozen(order.contract.frozen, places, setting.logs, hands.run)


def _interrupted(outcome: Outcome) -> Outcome:
    if outcome.decision == "no-go" and not outcome.rows:
        return outcome
    return replace(outcome, decision="not-established", why="interrupted before it was measured to the end")


def _attempt(result: Result, now: int) -> Attempt:
    return Attempt(
        contract=result.contract.name,
        digest=result.digest,
        base=result.base.name,
        cand=result.cand.name,
        commit=result.cand.commit,
        decision=result.outcome.decision,
        why=result.outcome.why,
        unix_ns=now,
        tool=f"kdaprof {__version__}",
    )
