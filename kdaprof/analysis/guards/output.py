"""Q09: fast but wrong. The figure of a call whose outputs are not finite, or not those of the reference."""

from __future__ import annotations

from kdaprof.analysis.guards.families import COUNTED, TIMED
from kdaprof.analysis.guards.rule import GuardRule
from kdaprof.analysis.view import CellView
from kdaprof.runs.facts import Fact
from kdaprof.runs.record import CellRecord, Check
from kdaprof.runs.units import format_error

# Workloads whose outputs a reference exists for: there, a cell that was never compared is refused as well.
WITH_REFERENCE = ("kda", "gdn", "gdn2", "precond_kda", "mha", "gemm")


def describe_failure(check: Check) -> str:
    """`dg is not finite; o differs by 1.4e-3, tolerance 1e-5`, the tensors that fail a check."""
    parts = []
    for tensor in check.tensors:
        if not tensor.finite or tensor.l2 is None:
            parts.append(f"{tensor.name} is not finite")
        elif tensor.l2 > check.tolerance_l2:
            parts.append(f"{tensor.name} differs by {format_error(tensor.l2)}")
    what = "; ".join(parts) or "no tensor was compared"
    return f"{what} (relative L2 against {check.against}, tolerance {format_error(check.tolerance_l2)})"


def wrong_output(cell: CellRecord) -> str | None:
    """Why this cell's outputs cannot be trusted; None when they agree, or when the cell made none to compare."""
    seen, key = cell.observed, cell.key
    if seen is None:
        return None
    if seen.check is not None and not seen.check.passed:
        return describe_failure(seen.check)
    if key.mode != "eager":
        capture = seen.capture
        if capture is not None and capture.check is not None and not capture.check.passed:
            return describe_failure(capture.check)
        if capture is not None and capture.stale_check_failed is False:
            return "outputs of another input passed the comparison too, so that it proves nothing"
        compared = capture is not None and capture.check is not None
    else:
        compared = seen.check is not None or key.path == "reference"
    if key.workload in WITH_REFERENCE and cell.status == "ok" and not compared:
        return "outputs were never compared with the reference"
    return None


def _wrong(view: CellView, name: str, fact: Fact) -> str | None:
    return wrong_output(view.cell)


WRONG_OUTPUT = GuardRule(
    id="Q09",
    title="wrong output",
    explanation=(
        "Outputs that are not finite or not the reference's. A synthetic decay overflowed, and the benchmark timed a "
        "kernel that production never runs."
    ),
    touches=TIMED | COUNTED,
    judge=_wrong,
)
