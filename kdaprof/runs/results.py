"""What is derived from a run: facts, evidence, stages, findings. All of it can be rebuilt from the samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kdaprof.runs.facts import Fact

Verdict = Literal["confirmed", "partial", "gate-only", "contradicted", "none"]
Severity = Literal["info", "warn", "error"]
Scalar = float | int | str | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What one witness says about the path that ran; `says` is None when it cannot speak, `detail` tells why or how."""

    name: Literal["gate", "kernels", "counts"]
    says: str | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Which path really ran, by three witnesses."""

    verdict: Verdict
    expected: str
    witnesses: tuple[Witness, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage of the call by its kernels: device time (median a call) and its share of the call's wall (Amdahl)."""

    name: str
    kernels: int
    busy_ns: int
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A diagnosis: one sentence, the numbers it rests on, the threshold it crossed, and what to do next."""

    id: str
    severity: Severity
    cell: str | None
    text: str
    evidence: dict[str, Scalar] = field(default_factory=dict)
    threshold: dict[str, Scalar] = field(default_factory=dict)
    next: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """What is derived of one cell."""

    id: str
    facts: dict[str, Fact]
    evidence: Evidence
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults:
    """facts.json and findings.json of one run."""

    run: str
    cells: tuple[CellResult, ...] = ()
    findings: tuple[Finding, ...] = ()

    def cell(self, cell_id: str) -> CellResult:
        """The result of a cell; KeyError when the run has none of that id."""
        for cell in self.cells:
            if cell.id == cell_id:
                return cell
        raise KeyError(cell_id)
