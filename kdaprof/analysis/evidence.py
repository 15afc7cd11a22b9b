"""Which path really ran, by three witnesses that do not know of each other: gate, kernels, counts.

A witness says a path's name, `not <path>` when it can only deny, or nothing when it cannot speak; `detail` tells
what it saw. One witness that names anything but the expected path contradicts, whatever the others say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kdaprof.analysis.view import KernelRow
from kdaprof.runs.record import CellRecord, GateObservation, Observed, PathSignature
from kdaprof.runs.results import Evidence, Verdict, Witness

PHASES_WITH_BACKWARD = ("bwd", "fwdbwd", "step")

# Paths made of torch's own operators. Every other path runs some of these kernels too (fills, copies, sums), so they
# speak only where no kernel of a more particular kind was seen.
TORCH_PATHS = ("reference", "tensor", "tensor-rows")
# Inductor's kernels come before those, but accompany a kernel of one's own that is called under torch.compile.
INDUCTOR_PATH = "compiled"
OWN, INDUCTOR, TORCH = 2, 1, 0

# A path of its own kernels that holds less of the device time than this did not do the work: something else did.
OWN_SHARE_MIN = 0.10


def judge_path(cell: CellRecord, kernels: Sequence[KernelRow], launches: int | None, allocs: int | None) -> Evidence:
    """Compare what the gate recorded, the kernels seen on the device, and the counts declared before the run.

    `launches` and `allocs` are those of one eager call; a replay is one launch, so that a graph cell is counted by
    its device events instead. `confirmed`: all three name the expected path. `contradicted`: one names another, or a
    count lies outside its declared range. `partial`: the kernels speak, another cannot. `gate-only`: the gate speaks
    and the kernels cannot (no device, or no recording). `none`: neither speaks.
    """
    expected, seen = cell.key.path, cell.observed
    if seen is None:
        reason = f"the cell has no observations ({cell.error.type})" if cell.error else "the cell did not run"
        silent = tuple(Witness(name=name, says=None, detail=reason) for name in ("gate", "kernels", "counts"))
        return Evidence(verdict="none", expected=expected, witnesses=silent)
    witnesses = (
        _gate(expected, cell.key.phase, seen.gate),
        _kernels(cell, seen, kernels),
        _counts(cell, seen, kernels, launches, allocs),
    )
    return Evidence(verdict=_verdict(expected, witnesses), expected=expected, witnesses=witnesses)


def _verdict(expected: str, witnesses: Sequence[Witness]) -> Verdict:
    says = {witness.name: witness.says for witness in witnesses}
    if any(word not in (None, expected) for word in says.values()):
        return "contradicted"
    if all(says.values()):
        return "confirmed"
    if says["kernels"]:
        return "partial"
    return "gate-only" if says["gate"] else "none"


# ---------------------------------------------------------------- gate


def _gate(expected: str, phase: str, gate: GateObservation | None) -> Witness:
    if gate is None:
        return Witness(name="gate", says=None, detail="the gate was not observed")
    forward, backward = sum(gate.forward.values()), sum(gate.backward.values())
    if gate.traced and not forward:
        # A compiled region has no counters: the decision was recorded when it was traced.
        return Witness(name="gate", says=gate.chosen, detail=f"chose {gate.chosen} when the call was traced")
    if not forward and not backward:
        return Witness(name="gate", says=None, detail="the gate was not asked during this cell")
    mine = (gate.forward.get(expected, 0), gate.backward.get(expected, 0))
    tally = f"{expected} {mine[0]}/{forward} forward, {mine[1]}/{backward} backward"
    for direction, counts in (("forward", gate.forward), ("backward", gate.backward)):
        others = {path: n for path, n in counts.items() if path != expected and n}
        if others:
            most = max(sorted(others), key=others.__getitem__)
            return Witness(name="gate", says=most, detail=f"{others[most]} {direction} calls took {most}; {tally}")
    if phase in PHASES_WITH_BACKWARD and not backward and not gate.traced:
        return Witness(name="gate", says=None, detail=f"no backward call was counted; {tally}")
    return Witness(name="gate", says=expected, detail=tally)


# ---------------------------------------------------------------- kernels


def _kernels(cell: CellRecord, seen: Observed, kernels: Sequence[KernelRow]) -> Witness:
    expected = cell.key.path
    if not kernels:
        reason = "no device" if seen.device == "cpu" else seen.missing.get("gpu_busy_ns", "no kernel was recorded")
        return Witness(name="kernels", says=None, detail=reason)
    matched = kernels_by_path(seen.signatures, kernels)
    if cell.key.context == "compile" and expected in TORCH_PATHS and INDUCTOR_PATH in matched:
        # torch.compile around tensor operators is what this cell asks for: inductor's kernels are that path's here.
        matched[expected] = [*matched.pop(INDUCTOR_PATH), *matched.get(expected, [])]
    total = sum(row.busy_ns for row in kernels)
    for rank in (OWN, INDUCTOR, TORCH):
        here = {path: rows for path, rows in matched.items() if _rank(path) == rank}
        if not here:
            continue
        path = _speaks_for(here, expected, rank)
        share = sum(row.busy_ns for row in here[path]) / total if total else 1.0
        if rank == OWN and share < OWN_SHARE_MIN and any(_rank(other) < OWN for other in matched):
            continue
        return Witness(name="kernels", says=path, detail=_example(path, here, kernels))
    signed = any(signature.path == expected for signature in seen.signatures)
    example = f"{len(kernels)} kernel names, e.g. {_short(_longest(kernels).name)}"
    if signed and _rank(expected) == OWN:
        return Witness(name="kernels", says=f"not {expected}", detail=f"no kernel of {expected} among {example}")
    return Witness(name="kernels", says=None, detail=f"no signature matches {example}")


def _rank(path: str) -> int:
    return TORCH if path in TORCH_PATHS else INDUCTOR if path == INDUCTOR_PATH else OWN


def kernels_by_path(signatures: Sequence[PathSignature], kernels: Sequence[KernelRow]) -> dict[str, list[KernelRow]]:
    """Kernels by path. A name counts for the first signature of a particular path that it matches, the most telling
    standing first; only a name that matches none counts for the paths of torch's operators, for each of them.
    """
    compiled = [(s.path, [re.compile(pattern) for pattern in s.patterns]) for s in signatures]
    matched: dict[str, list[KernelRow]] = {}
    for row in kernels:
        hits = [path for path, patterns in compiled if any(pattern.search(row.name) for pattern in patterns)]
        particular = [path for path in hits if _rank(path) > TORCH]
        for path in particular[:1] or hits:
            matched.setdefault(path, []).append(row)
    return matched


def _speaks_for(matched: Mapping[str, Sequence[KernelRow]], expected: str, rank: int) -> str:
    """Among paths of one rank: the one whose exclusive kernels were seen; the expected one where nothing decides.

    Paths of their own kernels that were both seen are told apart by device time (a peer that hands the call on).
    """
    names = {path: {row.name for row in rows} for path, rows in matched.items()}
    exclusive: dict[str, int] = {}
    for path, rows in matched.items():
        shared = set().union(*(names[other] for other in names if other != path))
        exclusive[path] = sum(row.busy_ns for row in rows if row.name not in shared) if names[path] - shared else -1
    # In the order of the signatures: where nothing tells two apart, the first declared speaks.
    rivals = [path for path in matched if path != expected and exclusive[path] >= 0]
    if not rivals and expected in matched:
        return expected
    strongest = max(rivals or matched, key=exclusive.__getitem__)
    if expected in matched and exclusive[expected] >= 0:
        wins = rank == TORCH or exclusive[expected] >= exclusive[strongest]
        return expected if wins else strongest
    return strongest


def _example(path: str, matched: Mapping[str, Sequence[KernelRow]], kernels: Sequence[KernelRow]) -> str:
    rows = matched[path]
    longest = _longest(rows)
    calls, total = sum(row.calls for row in rows), sum(row.calls for row in kernels)
    alike = ", ".join(other for other in matched if other != path and list(matched[other]) == list(rows))
    same = f" (the same as {alike})" if alike else ""
    return f"{calls} of {total} device events a call are of {path}{same}, e.g. {_short(longest.name)} ×{longest.calls}"


def _longest(rows: Sequence[KernelRow]) -> KernelRow:
    return min(rows, key=lambda row: (-row.busy_ns, row.name))


def _short(name: str, limit: int = 60) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"


# ---------------------------------------------------------------- counts


def _counts(
    cell: CellRecord, seen: Observed, kernels: Sequence[KernelRow], launches: int | None, allocs: int | None
) -> Witness:
    expected, declared = cell.key.path, seen.declared
    if declared is None or (declared.launches is None and declared.allocs is None):
        return Witness(name="counts", says=None, detail="no counts were declared before the run")
    if cell.key.mode == "graph":
        nodes = seen.capture.nodes if seen.capture else None
        launches = nodes if nodes is not None else sum(row.calls for row in kernels) or None
        allocs = None
    pairs = (("launches", launches, declared.launches), ("allocations", allocs, declared.allocs))
    spoken, outside = [], False
    for name, found, allowed in pairs:
        if found is None or allowed is None:
            continue
        outside |= not allowed[0] <= found <= allowed[1]
        wanted = f"{allowed[0]}" if allowed[0] == allowed[1] else f"{allowed[0]} to {allowed[1]}"
        spoken.append(f"{found} {name} (declared {wanted})")
    if not spoken:
        reason = "no device" if seen.device == "cpu" else "neither launches nor allocations could be counted"
        return Witness(name="counts", says=None, detail=reason)
    return Witness(name="counts", says=f"not {expected}" if outside else expected, detail=", ".join(spoken))
