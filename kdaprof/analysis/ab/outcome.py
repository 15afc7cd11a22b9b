"""What comes out of an experiment: gates with their verdicts, and the decision that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["pass", "fail", "not-established"]
Decision = Literal["go", "no-go", "not-established"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """One gate: what was wanted, what came out, and which it is. `value` and `interval` are of the deciding figure."""

    name: str
    kind: str
    want: str
    got: str
    verdict: Verdict
    value: float | None = None
    interval: tuple[float, float] | None = None
    limit: float | None = None
    shape: str | None = None
    """The shape that decided, where one did."""


def decide(gates: Sequence[GateResult]) -> Decision:
    """One gate that fails is a no-go; a go needs every gate to pass, and at least one."""
    verdicts = {gate.verdict for gate in gates}
    if "fail" in verdicts:
        return "no-go"
    return "go" if verdicts == {"pass"} else "not-established"


def reason(gates: Sequence[GateResult]) -> str:
    """The gates that decided, in one line."""
    decision = decide(gates)
    if decision == "go":
        return f"all {len(gates)} gates passed"
    if decision == "not-established":
        unknown = [gate.name for gate in gates if gate.verdict == "not-established"]
        return f"{len(unknown)} of {len(gates)} gates neither passed nor failed: {', '.join(unknown)}"
    failed = [gate for gate in gates if gate.verdict == "fail"]
    return "; ".join(f"{gate.name}: wanted {gate.want}, got {gate.got}" for gate in failed)
