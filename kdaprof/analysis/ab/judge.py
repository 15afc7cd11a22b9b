"""From a contract and its evidence to the outcome: rows, gates, decision. Pure: the same evidence decides the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdaprof.analysis.ab.contract import Contract, StageShare
from kdaprof.analysis.ab.evidence import Evidence
from kdaprof.analysis.ab.gates import judge_gate
from kdaprof.analysis.ab.outcome import Decision, GateResult, decide, reason
from kdaprof.analysis.ab.rows import Row, rows_of

NOT_TIMED = "nothing was timed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The experiment's table, its gates in the order in which they were judged, and the decision with its reason."""

    rows: tuple[Row, ...]
    gates: tuple[GateResult, ...]
    decision: Decision
    why: str


def judge(contract: Contract, evidence: Evidence | None, before: Sequence[GateResult] = ()) -> Outcome:
    """The outcome. `before` are gates judged before anything was timed; with one that failed, nothing was.

    `evidence` is None when nothing was timed: rows and the gates on them are then left out.
    """
    if evidence is None:
        failed = decide(before) == "no-go"
        decision: Decision = "no-go" if failed else "not-established"
        return Outcome(rows=(), gates=tuple(before), decision=decision, why=reason(before) if failed else NOT_TIMED)
    rows = rows_of(contract, evidence)
    checks = _outputs(evidence)
    judged = [judge_gate(contract, gate, evidence, rows) for gate in contract.gates if not isinstance(gate, StageShare)]
    gates = (*before, *checks, *judged)
    return Outcome(rows=rows, gates=gates, decision=decide(gates), why=reason(gates))


def _outputs(evidence: Evidence) -> tuple[GateResult, ...]:
    """A wrong output fails the experiment whatever its speed."""
    return tuple(
        GateResult(
            name=f"outputs of {side} on {row.shape}",
            kind="outputs",
            want="within tolerance of the reference",
            got=found.wrong,
            verdict="fail",
            shape=row.shape,
        )
        for row in evidence.shapes
        for side, found in (("base", row.base), ("cand", row.cand))
        if found.wrong is not None
    )
