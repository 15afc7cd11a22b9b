"""Findings about what ran: a path that is not the label's, a wrong result, a missing backward, a fallback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdaprof.analysis.findings.figures import name_of
from kdaprof.analysis.guards.output import wrong_output
from kdaprof.analysis.guards.path import PROVEN, backward_never_ran, describe_contradiction
from kdaprof.analysis.view import CellView
from kdaprof.runs.cells import OWN_PATH
from kdaprof.runs.results import Finding, Scalar

CONTRADICTED = "path-contradicted"


def contradicted(views: Sequence[CellView]) -> Iterator[Finding]:
    """A witness names another path than the label: nothing measured of this cell is what it says it is."""
    for view in views:
        if view.evidence.verdict != "contradicted":
            continue
        says: dict[str, Scalar] = {w.name: w.says for w in view.evidence.witnesses}
        yield Finding(
            id=CONTRADICTED,
            severity="error",
            cell=view.cell.id,
            text=f"{name_of(view)}: another path ran: {describe_contradiction(view.evidence)}",
            evidence={"expected": view.evidence.expected, **says},
            threshold={"witnesses_against_max": 0},
            next=(
                "Believe the device: read this cell's kernel table, then the gate's reasons in run.json, "
                "and quote none of its figures (Q06)."
            ),
        )


def wrong(views: Sequence[CellView]) -> Iterator[Finding]:
    """Outputs that are not finite or not the reference's; for a graph, replays that are not eager's."""
    for view in views:
        reason, seen = wrong_output(view.cell), view.cell.observed
        if reason is None or seen is None:
            continue
        graph = view.cell.key.mode == "graph"
        check = seen.capture.check if graph and seen.capture else seen.check
        errors: dict[str, Scalar] = {t.name: t.l2 if t.finite else None for t in check.tensors} if check else {}
        yield Finding(
            id="graph-output-differs" if graph else "wrong-output",
            severity="error",
            cell=view.cell.id,
            text=f"{name_of(view)}: {reason}",
            evidence=errors,
            threshold={"l2_max": check.tolerance_l2 if check else None},
            next=(
                "Compare after every replay with inputs copied in place; look for tensors made outside the capture."
                if graph
                else "Fix the result before the speed: no time of this cell is worth having (Q09)."
            ),
        )


def no_backward(views: Sequence[CellView]) -> Iterator[Finding]:
    """A phase with a backward pass in which none ran."""
    for view in views:
        reason, seen = backward_never_ran(view), view.cell.observed
        if reason is None or seen is None:
            continue
        gate = seen.gate
        yield Finding(
            id="backward-never-ran",
            severity="error",
            cell=view.cell.id,
            text=f"{name_of(view)}: {reason}",
            evidence={
                "forward_calls": sum(gate.forward.values()) if gate else None,
                "backward_calls": sum(gate.backward.values()) if gate else None,
            },
            threshold={"backward_calls_min": 1},
            next="Check requires_grad of the inputs and that the loss reaches this op: no training figure without it.",
        )


def not_proven(views: Sequence[CellView]) -> Iterator[Finding]:
    """On a GPU, a path that nothing but its label speaks for."""
    for view in views:
        seen, verdict = view.cell.observed, view.evidence.verdict
        if seen is None or seen.device != "cuda" or view.cell.status != "ok":
            continue
        if verdict in PROVEN or verdict == "contradicted" or view.evidence.expected == OWN_PATH:
            continue
        silent = "; ".join(f"{w.name}: {w.detail}" for w in view.evidence.witnesses if w.says is None)
        yield Finding(
            id="path-not-proven",
            severity="warn",
            cell=view.cell.id,
            text=f"{name_of(view)}: evidence that this path ran is {verdict} ({silent})",
            evidence={w.name: w.says for w in view.evidence.witnesses},
            threshold={"witnesses_min": "kernels and one more"},
            next="Make the profiled repeats work (another profiler may hold CUPTI), then run again.",
        )


def fell_back(views: Sequence[CellView]) -> Iterator[Finding]:
    """The gate took another path than the one asked for, and says why."""
    for view in views:
        gate = view.cell.observed.gate if view.cell.observed else None
        if gate is None:
            continue
        expected = view.cell.key.path
        took = {path: n for path, n in gate.forward.items() if path != expected and n}
        if not took and gate.chosen not in (None, expected):
            took = {str(gate.chosen): gate.calls}
        reasons = [refusal.reason for refusal in gate.refused if refusal.path == expected]
        if not took or not reasons:
            continue
        path = max(sorted(took), key=took.__getitem__)
        yield Finding(
            id="gate-fell-back",
            severity="warn",
            cell=view.cell.id,
            text=f"{name_of(view)}: the gate took {path} in {took[path]} of {gate.calls} calls: {reasons[0]}",
            evidence={"path": path, "calls": took[path], "of": gate.calls, "reason": reasons[0]},
            threshold={"calls_elsewhere_max": 0},
            next=f"Remove the cause, or ask for path={expected!r} by name: it then raises instead of falling back.",
        )
