"""Q15: a peer that is compared with itself, because it handed its calls to the path beside it."""

from __future__ import annotations

from kdaprof.analysis.evidence import kernels_by_path
from kdaprof.analysis.guards.families import COUNTED, TIMED
from kdaprof.analysis.guards.rule import GuardRule
from kdaprof.analysis.view import CellView
from kdaprof.runs.cells import PEER_PATHS
from kdaprof.runs.facts import Fact
from kdaprof.runs.units import format_fraction

HANDED_SHARE_MAX = 0.10
"""Share of a peer's device time in kernels of a path that is measured beside it."""


def compared_paths(view: CellView) -> tuple[str, ...]:
    """The other paths that this run measured on the same call, in the run's order."""
    mine = view.cell.key
    same = (cell.key for cell in view.run.cells if cell.status == "ok")
    return tuple(
        dict.fromkeys(
            key.path
            for key in same
            if key.path != mine.path
            and (key.workload, key.context, key.phase, key.shape, key.dtype)
            == (mine.workload, mine.context, mine.phase, mine.shape, mine.dtype)
        )
    )


def _self_compared(view: CellView, name: str, fact: Fact) -> str | None:
    mine, seen = view.cell.key.path, view.cell.observed
    if mine not in PEER_PATHS or seen is None:
        return None
    others = compared_paths(view)
    matched = kernels_by_path(seen.signatures, view.kernels)
    total = sum(row.busy_ns for row in view.kernels)
    for other in others:
        share = sum(row.busy_ns for row in matched.get(other, ())) / total if total else 0.0
        if _has_own_kernels(other) and share > HANDED_SHARE_MAX:
            longest = max(matched[other], key=lambda row: row.busy_ns).name
            return (
                f"{format_fraction(share)} of its device time is in kernels of {other} ({longest[:60]}), "
                f"which this run compares it with"
            )
    handed = next((path for path in others if seen.gate is not None and seen.gate.forward.get(path)), None)
    if handed is not None:
        return f"its dispatcher says that calls went to {handed}, which this run compares it with"
    return None


def _has_own_kernels(path: str) -> bool:
    """Torch's and inductor's kernels (fills, copies, casts) belong to every path's calls."""
    return path == "fused" or path in PEER_PATHS


SELF_COMPARISON = GuardRule(
    id="Q15",
    title="self-comparison",
    explanation=(
        "A peer that dispatches to the path it is compared with is no peer. FLA's chunk_kda hands a call that fits to "
        "FlashKDA, and says so once, in a log."
    ),
    touches=TIMED | COUNTED,
    judge=_self_compared,
    thresholds={"handed_share_max": HANDED_SHARE_MAX},
)
