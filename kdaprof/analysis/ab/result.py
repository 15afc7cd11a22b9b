"""An experiment's whole result: the outcome with the contract, the sides and the machine that it holds for."""

from __future__ import annotations

from dataclasses import dataclass

from kdaprof.analysis.ab.contract import Contract
from kdaprof.analysis.ab.judge import Outcome
from kdaprof.runs.conditions import ConditionsSnapshot
from kdaprof.runs.environment import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """One side as it was measured: what was asked for, and the commit behind it where there is one."""

    name: str
    commit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came out. `complete` is False when it was interrupted.

    `source` is where the evidence was read from; attempt, environment and conditions are then None: nothing was
    measured here. `errors` are sides that could not be measured.
    """

    contract: Contract
    digest: str
    base: Party
    cand: Party
    outcome: Outcome
    complete: bool
    attempt: int | None = None
    environment: Environment | None = None
    before: ConditionsSnapshot | None = None
    after: ConditionsSnapshot | None = None
    started_unix_ns: int | None = None
    source: str | None = None
    errors: tuple[str, ...] = ()
