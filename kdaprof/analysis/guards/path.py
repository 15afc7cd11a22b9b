"""Q06 and Q07: a figure of a path that is not proven to have run, or of a backward pass that never did."""

from __future__ import annotations

from kdaprof.analysis.evidence import PHASES_WITH_BACKWARD
from kdaprof.analysis.guards.families import COUNTED, TIMED
from kdaprof.analysis.guards.rule import GuardRule
from kdaprof.analysis.view import CellView
from kdaprof.runs.cells import OWN_PATH
from kdaprof.runs.facts import Fact
from kdaprof.runs.results import Evidence

# `partial` is shown and quotable with its name.
PROVEN = ("confirmed", "partial")


def describe_contradiction(evidence: Evidence) -> str:
    """`kernels say tensor: 287 …; counts say not fused: …`, the witnesses that name anything but the label."""
    against = [w for w in evidence.witnesses if w.says not in (None, evidence.expected)]
    return "; ".join(f"{w.name} {'says' if w.name == 'gate' else 'say'} {w.says}: {w.detail}" for w in against)


def _not_proven(view: CellView, name: str, fact: Fact) -> str | None:
    evidence, seen = view.evidence, view.cell.observed
    if evidence.verdict == "contradicted":
        return f"labelled {evidence.expected}, but {describe_contradiction(evidence)}"
    if evidence.expected == OWN_PATH:  # no path was claimed, so none has to be proven
        return None
    # Without a device the gate is the only witness there can be, and Q08 refuses the times anyway.
    alone = evidence.verdict == "gate-only" and seen is not None and seen.device == "cpu"
    if evidence.verdict in PROVEN or alone:
        return None
    silent = "; ".join(f"{w.name}: {w.detail}" for w in evidence.witnesses if w.says is None)
    return f"evidence that {evidence.expected} ran is {evidence.verdict} ({silent})"


def backward_never_ran(view: CellView) -> str | None:
    """Why a cell whose phase holds a backward pass did not run one; None when it did, or cannot be told."""
    seen, phase = view.cell.observed, view.cell.key.phase
    if seen is None or view.backward_kernels_seen:
        return None
    # A watched loop may evaluate: there only its user can say whether its steps train.
    if not (seen.trains or (phase in PHASES_WITH_BACKWARD and seen.borders != "loop")):
        return None
    if view.backward_kernels_seen is False:
        return f"phase {phase}, but no backward kernel was seen on the device"
    gate = seen.gate
    forward, backward = (sum(gate.forward.values()), sum(gate.backward.values())) if gate else (0, 0)
    if gate is None or gate.traced or not forward or backward:
        return None
    return f"phase {phase}, but the gate counted {view.cell.key.path} = {forward}/0 (forward/backward)"


def _no_backward(view: CellView, name: str, fact: Fact) -> str | None:
    return backward_never_ran(view)


PATH_NOT_PROVEN = GuardRule(
    id="Q06",
    title="path not proven",
    explanation=(
        "Figures of a path that nothing shows to have run. “The fused kernels are engaged” was believed for days; a "
        "type test in the dispatcher took the tensor path in every step."
    ),
    touches=TIMED,
    judge=_not_proven,
)
NO_BACKWARD = GuardRule(
    id="Q07",
    title="backward never ran",
    explanation=(
        "A training figure without a backward pass in it: the log said `kda = f/0`, and no run on record had ever "
        "executed one."
    ),
    touches=TIMED | COUNTED,
    judge=_no_backward,
)
