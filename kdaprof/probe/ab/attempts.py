"""The log of attempts under a contract: one file an attempt, never edited, in the store; and the stop rule over it.

An attempt counts once its candidate was timed, whatever came out: to measure again until an interval falls right is
what the rule is for.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kdaprof.analysis.ab.contract import Contract
from kdaprof.analysis.ab.outcome import Decision, GateResult
from kdaprof.analysis.ab.reading import digest
from kdaprof.errors import UsageError
from kdaprof.runs.codec import read_document, to_json, write_document

ATTEMPTS_FOLDER = "ab"
_KIND = "ab-attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One measured attempt: which candidate, under which contract (its digest), and how it came out."""

    contract: str
    digest: str
    base: str
    cand: str
    commit: str | None
    decision: Decision
    why: str
    unix_ns: int
    tool: str


def add_attempt(store: Path, attempt: Attempt) -> Path:
    """Put one attempt into the store, as a file of its own whose name no other writer takes; returns where."""
    moment = datetime.fromtimestamp(attempt.unix_ns / 1e9, UTC).strftime("%Y%m%dT%H%M%SZ")
    path = store / ATTEMPTS_FOLDER / attempt.contract / f"{moment}-{secrets.token_hex(4)}.json"
    write_document(path, _KIND, to_json(attempt))
    return path


def read_attempts(store: Path, contract: str) -> tuple[Attempt, ...]:
    """The attempts under the contract of that name, oldest first.

    Errors: BadFileError naming the file that is damaged: an attempt that cannot be read must not be taken for none.
    """
    files = sorted((store / ATTEMPTS_FOLDER / contract).glob("[!.]*.json"))
    return tuple(sorted((read_document(path, _KIND, Attempt) for path in files), key=lambda one: one.unix_ns))


def stop_rule(contract: Contract, past: tuple[Attempt, ...]) -> GateResult | None:
    """The gate of the stop rule; None for a contract without one.

    Errors: UsageError when the contract changed since its first attempt: bounds that move after a measurement are
    none.
    """
    if past and past[0].digest != digest(contract):
        raise UsageError(
            f"contract {contract.name!r} changed since its first attempt ({past[0].digest[:12]}…): restore it, or give "
            "the changed one another name"
        )
    if contract.attempts is None:
        return None
    most = contract.attempts.most
    stopped = len(past) >= most
    return GateResult(
        name="stop rule",
        kind="attempts",
        want=f"at most {most} attempts",
        got=f"{len(past)} on record, none may follow" if stopped else f"attempt {len(past) + 1}",
        verdict="fail" if stopped else "pass",
        value=len(past) + (not stopped),
        limit=most,
    )
