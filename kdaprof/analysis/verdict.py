"""The verdict of a run in plain sentences: what ran, where a call's time goes, which path is faster.

At most two sentences a path, then one for each pair of paths. Only figures that may be quoted are stated; where a
rule refuses one, the sentence gives the rule instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kdaprof.analysis.findings.bound import Bound, bound_of
from kdaprof.analysis.findings.compare import COMPARED
from kdaprof.analysis.findings.figures import PHASES, between, quoted
from kdaprof.analysis.guards.output import wrong_output
from kdaprof.runs.cells import OWN_PATH, CellKey
from kdaprof.runs.facts import Fact
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.results import CellResult, Evidence, Finding, RunResults
from kdaprof.runs.units import format_error, format_fraction, format_ns

Cell = tuple[CellRecord, CellResult]

PARTIAL = "The run is partial"
"""How the sentence begins that says that a run ended before its plan did."""

_MOSTLY = {
    "host": ", mostly for host dispatch",
    "sync": ", mostly because the host had waited for it",
    "device_wait": ", mostly in launch latency and its own order of work",
}
# From the most to the least damning; the first that any cell has is the path's.
_WORST_FIRST = ("contradicted", "none", "gate-only", "partial", "confirmed")
_UNPROVEN = ("none", "gate-only")


def sentence(record: RunRecord, results: RunResults) -> tuple[str, ...]:
    """The verdict, one string a path in the order of the run, then one a pair of paths, then what is unfinished."""
    by_path: dict[tuple[str, str], list[Cell]] = {}
    known = {result.id: result for result in results.cells}
    of = _dtype_told(record)
    for cell in record.cells:
        if cell.id in known:
            by_path.setdefault((cell.key.path, of(cell.key)), []).append((cell, known[cell.id]))
    lines = [f"{path}{dtype}: {' '.join(_path(path, cells))}" for (path, dtype), cells in by_path.items()]
    lines.extend(_pairs(record, results.findings))
    if not record.complete:
        done = sum(cell.status == "ok" for cell in record.cells)
        lines.append(f"{PARTIAL}: {done} {'cell' if done == 1 else 'cells'} finished before it ended.")
    return tuple(lines)


def _dtype_told(record: RunRecord) -> Callable[[CellKey], str]:
    """` bfloat16` where the run has a path in several dtypes, which is then spoken of by each; else nothing."""
    dtypes: dict[str, set[str]] = {}
    for cell in record.cells:
        dtypes.setdefault(cell.key.path, set()).add(cell.key.dtype)
    several = any(len(names) > 1 for names in dtypes.values())
    return lambda key: f" {key.dtype}" if several else ""


def _phase(key: CellKey, cells: Iterable[CellRecord]) -> str:
    """`forward`, `step`; `step at B 1` where its path has steps of several sizes, of which one is spoken of."""
    sizes = {cell.key.shape for cell in cells if cell.key.phase == key.phase == "step" and cell.key.path == key.path}
    axes = [f"{axis} {size}" for axis, size in key.shape if any((axis, size) not in shape for shape in sizes)]
    return PHASES.get(key.phase, key.phase) + (f" at {', '.join(axes)}" if axes else "")


def _path(path: str, cells: Sequence[Cell]) -> Iterator[str]:
    eager = [pair for pair in cells if pair[0].key.mode == "eager" and pair[0].status == "ok"]
    if not eager:
        yield _why_not(cells)
        return
    steps = [pair for pair in eager if pair[0].key.phase == "step"]
    # A step speaks for its phases, and the first that was measured for those of other sizes.
    eager = [pair for pair in steps if pair[0].key.shape == steps[0][0].key.shape] or eager
    # One context speaks for the path: the plain one where it was measured.
    context = "plain" if any(cell.key.context == "plain" for cell, _ in eager) else eager[0][0].key.context
    told = [(cell, result) for cell, result in eager if cell.key.context == context]
    bad = _untrusted(cells)
    if bad is not None:
        yield bad
        return
    seen = [cell.observed for cell, _ in told if cell.observed is not None]
    if any(one.device == "cpu" for one in seen):
        where = "in Triton's interpreter" if any(one.interpreted for one in seen) else "on the CPU"
        yield f"ran {where}: {_agreement(told)}; its times are not speed (Q08)."
        return
    yield _witnesses(path, told)
    yield from _time(told, cells)


def _why_not(cells: Sequence[Cell]) -> str:
    """Why no eager cell of the path has a result."""
    cell = next((cell for cell, _ in cells if cell.error is not None), cells[0][0])
    text = f"{cell.error.type}: {cell.error.text}" if cell.error and cell.status == "failed" else None
    reason = text or (cell.error.text if cell.error else "")
    return f"{cell.status}{f': {reason}' if reason else ''}".rstrip(".") + "."


def _untrusted(cells: Sequence[Cell]) -> str | None:
    """A path whose figures mean nothing: another one ran, or its outputs are wrong."""
    for cell, result in cells:
        if result.evidence.verdict == "contradicted":
            against = ", ".join(
                f"{w.name} {w.says}" for w in result.evidence.witnesses if _denies(w.says, result.evidence)
            )
            return f"another path ran {_in(cell)} ({against}), so none of its figures may be quoted (Q06)."
    for cell, _ in cells:
        reason = wrong_output(cell) if cell.status == "ok" else None
        if reason is not None:
            return f"its output is wrong {_in(cell)}: {reason}; its times mean nothing (Q09)."
    return None


def _denies(says: str | None, evidence: Evidence) -> bool:
    return says not in (None, evidence.expected)


def _in(cell: CellRecord) -> str:
    graph = " in a graph" if cell.key.mode == "graph" else ""
    return f"in {PHASES.get(cell.key.phase, cell.key.phase)}{graph}"


def _agreement(cells: Sequence[Cell]) -> str:
    errors = [error for _, result in cells if (error := quoted(result.facts, "error_l2")) is not None]
    if not errors:
        return "its outputs were not compared with a reference"
    gradients = " and gradients" if any(cell.observed and cell.observed.trains for cell, _ in cells) else ""
    return f"outputs{gradients} agree with the reference (error {format_error(max(errors))})"


def _witnesses(path: str, cells: Sequence[Cell]) -> str:
    """The least that is proven; where some phases are proven and others are not, both are said."""
    unproven = [cell for cell, result in cells if result.evidence.verdict in _UNPROVEN]
    if path == OWN_PATH:
        return "it does not call the op, so that there is no path to prove."
    proven = [(cell, result.evidence) for cell, result in cells if result.evidence.verdict not in _UNPROVEN]
    if not proven:
        agree = min(_agreeing(result.evidence) for _, result in cells)
        return f"nothing on the device shows that the {path} path ran ({agree} of 3 witnesses, Q06)."
    _, worst = min(proven, key=lambda pair: _WORST_FIRST.index(pair[1].verdict))
    silent = [witness.name for witness in worst.witnesses if witness.says is None]
    missing = f"; {' and '.join(silent)} cannot speak" if silent else ""
    phases = f" in {_phases(cell for cell, _ in proven)}" if unproven else ""
    rest = f"; nothing on the device shows it in {_phases(unproven)} (Q06)" if unproven else ""
    return f"the {path} path ran{phases} ({_agreeing(worst)} of 3 witnesses{missing}){rest}."


def _agreeing(evidence: Evidence) -> int:
    return sum(witness.says == evidence.expected for witness in evidence.witnesses)


def _phases(cells: Iterable[CellRecord]) -> str:
    names = dict.fromkeys(PHASES.get(cell.key.phase, cell.key.phase) for cell in cells)
    return " and ".join(names)


# ---------------------------------------------------------------- where the time goes


def _time(told: Sequence[Cell], cells: Sequence[Cell]) -> Iterator[str]:
    """Where the time of `told` goes, of all the `cells` of the path."""
    known = {cell.id: result for cell, result in cells}
    phases = {cell.key.phase: (cell, result) for cell, result in told}
    if "fwd" in phases or "fwdbwd" in phases:
        phases.pop("bwd", None)  # told by the other two
    clauses = []
    for cell, result in phases.values():
        graph = known.get(cell.key.sibling(mode="graph").id)
        clauses.append(_clause(_phase(cell.key, (one for one, _ in cells)), result.facts, graph))
    text = "; ".join(clauses)
    if text:
        yield f"{text[0].upper()}{text[1:]}."


def _clause(phase: str, facts: Mapping[str, Fact], graph: CellResult | None) -> str:
    bound = bound_of(facts)
    wall, busy = quoted(facts, "wall_ns"), quoted(facts, "gpu_busy_ns")
    if bound.share is None or wall is None or busy is None:
        return _without_split(phase, facts)
    if bound.kind == "gpu":
        floor = quoted(facts, "floor_ns")
        beside = f", floor {format_ns(floor)}" if floor is not None else ""
        share = format_fraction(1 - bound.share)
        return f"the GPU is busy {share} of {_one(phase)} (wall {format_ns(wall)}, busy {format_ns(busy)}{beside})"
    replay = quoted(graph.facts, "wall_ns") if graph is not None else None
    waits = _waits(phase, bound)
    if replay is None:
        return f"{waits} (wall {format_ns(wall)}, busy {format_ns(busy)})"
    return f"{waits}; a CUDA Graph takes it from {format_ns(wall)} to {format_ns(replay)} (busy {format_ns(busy)})"


def _waits(phase: str, bound: Bound) -> str:
    assert bound.share is not None
    return f"the GPU waits {format_fraction(bound.share)} of {_one(phase)}{_MOSTLY.get(bound.kind, '')}"


def _one(phase: str) -> str:
    return f"a {phase}" if phase.startswith("step") else f"a {phase} call"


def _without_split(phase: str, facts: Mapping[str, Fact]) -> str:
    """What may be said without the split: what is quotable of it, and what refuses or withholds the rest."""
    parts: list[str] = []
    why: dict[str, list[str]] = {}
    for name, words in (("wall_ns", "wall"), ("gpu_busy_ns", "busy"), ("host_bound", "host-bound share")):
        value, fact = quoted(facts, name), facts.get(name)
        if value is not None and name != "host_bound":
            parts.append(f"{words} {format_ns(value)}")
        elif fact is None or fact.value is None:
            why.setdefault(f"missing: {fact.detail if fact is not None else 'not derived'}", []).append(words)
        elif value is None:
            # What a source was refused for is said once, in the source's own words.
            direct = [reason for reason in fact.reasons if not reason.text.startswith("through ")]
            own = [reason for reason in direct if reason.rule != "Q13"] or direct
            if own and (name != "host_bound" or not why):
                why.setdefault(f"refused: {own[0].text} ({own[0].rule})", []).append(words)
    reasons = [f"{' and '.join(words)} {text}" for text, words in why.items()]
    return f"{phase}: {'; '.join((*parts, *reasons))}" if parts or reasons else f"{phase}: no figures"


# ---------------------------------------------------------------- paths against each other


def _pairs(record: RunRecord, findings: Iterable[Finding]) -> Iterator[str]:
    steps = [cell.key for cell in record.cells if cell.key.phase == "step"]
    told = [key for key in steps if key.shape == steps[0].shape] or [cell.key for cell in record.cells]
    keys = {key.id: key for key in told}
    said: dict[tuple[str, str], list[str]] = {}
    of = _dtype_told(record)
    for finding in findings:
        key = keys.get(finding.cell or "")
        if finding.id != COMPARED or key is None or key.mode != "eager" or key.context != "plain":
            continue
        fastest, phase = key.path, _phase(key, record.cells) + of(key)
        for name, verdict in finding.evidence.items():
            if name.endswith("_verdict"):
                other = name.removesuffix("_verdict")
                said.setdefault((fastest, other), []).append(_ratio(finding, other, str(verdict), phase))
    for (fastest, other), clauses in said.items():
        yield f"{fastest} against {other}: {', '.join(clauses)}."


def _ratio(finding: Finding, other: str, verdict: str, phase: str) -> str:
    value, low, high = (finding.evidence.get(f"{other}_{part}") for part in ("ratio", "low", "high"))
    if not (isinstance(value, float) and isinstance(low, float) and isinstance(high, float)):
        return f"not established in {phase}"
    span = between(low, high)
    if verdict == "slower":
        return f"{value:.3g} times as fast in {phase} ({span})"
    if verdict == "same":
        return f"the same in {phase} ({span})"
    return f"no difference established in {phase} ({span})"
