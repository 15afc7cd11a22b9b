"""What the GPU tests of probes share: an effort of seconds, repeats in this process, and the rules that a cell met."""

from __future__ import annotations

from collections.abc import Mapping

from kdaprof.probe.child import ChildResult, ChildSpec
from kdaprof.probe.plan import Effort
from kdaprof.probe.profiled import profile_cell
from kdaprof.runs.results import CellResult

EFFORT = Effort(
    rounds=2, rounds_most=1, samples=3, warmup=2, events=2, burst=3, allocator=2, profiled=3, profiled_full=2,
    util_seconds=0,
)  # fmt: skip


def in_this_process(spec: ChildSpec, *, env: Mapping[str, str], timeout_s: float) -> ChildResult:
    """Profiled repeats here, where a test can put another op in a path's place or change how a library tunes."""
    assert spec.task == "profile"
    return ChildResult(cells=tuple(profile_cell(case, spec) for case in spec.cases))


def rules(result: CellResult) -> set[str]:
    """Rules that refuse any figure of the cell."""
    return {reason.rule for fact in result.facts.values() for reason in fact.reasons}


def kernels_say(result: CellResult) -> str | None:
    """The path whose kernels ran, by the witness."""
    assert result.evidence is not None
    return next(witness.says for witness in result.evidence.witnesses if witness.name == "kernels")
