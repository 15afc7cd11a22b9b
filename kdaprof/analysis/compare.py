"""Two stored runs, cell by cell: is the candidate faster than the base, by how much, and may that be said at all?

The runs were not interleaved, so whatever changed between them (the machine's mood, clocks, the code) is in the
ratio; the interval knows only what moved from round to round within each. `kdaprof ab` interleaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from kdaprof.analysis.celldata import CellData, gather
from kdaprof.analysis.compare_conditions import Difference, differences
from kdaprof.analysis.compare_shapes import Medians, ShapesMean, mean_of_shapes
from kdaprof.analysis.guards import may_enter_ratio
from kdaprof.analysis.interleaved import MIN_ROUNDS, SAME_BAND, Comparison, judge
from kdaprof.analysis.recordings import summed
from kdaprof.analysis.stats import MIN_ROUNDS as FEWEST
from kdaprof.analysis.stats import Interval, median, round_medians
from kdaprof.analysis.view import RawRun
from kdaprof.analysis.welch import log_ratio
from kdaprof.runs.facts import Fact
from kdaprof.runs.results import CellResult, RunResults
from kdaprof.runs.retractions import RULE as RETRACTED

THRESHOLD = 0.05
"""How much slower a candidate may be before it is a regression."""

GateVerdict = Literal["pass", "fail", "not-established"]
Decision = Literal["go", "no-go", "not-established"]

NOT_INTERLEAVED = (
    "The runs were not interleaved: the intervals hold what moved between the rounds of each run, not what moved "
    "between the runs. `kdaprof ab` measures both in turn."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One run: its raw parts for the rounds, its results as they stand after what was retracted."""

    raw: RawRun
    results: RunResults


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of one cell in both runs. `ratio` is cand / base; None, and `why` says so, where none may be made."""

    cell: str
    fact: str
    base: Fact
    cand: Fact
    ratio: float | None
    interval: Interval | None
    rounds: tuple[int, int]
    verdict: Comparison
    why: str | None
    gate: GateVerdict | None
    """Against the threshold; None where the base has no figure that could be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Everything that can be said of two runs; `differences` are what should have been the same."""

    base: str
    cand: str
    threshold: float
    band: float
    differences: tuple[Difference, ...]
    rows: tuple[Row, ...]
    means: tuple[ShapesMean, ...]
    """Across the shapes of a call, where a ratio could be made of two or more; they inform, and decide nothing."""
    only_base: tuple[str, ...]
    only_cand: tuple[str, ...]
    decision: Decision


Rounds = Callable[[CellData], Iterable[tuple[int, float]]]

# The samples that each figure is the median of, as (round, value): the same as in `kdaprof.analysis.measured`.
SERIES: Mapping[str, Rounds] = MappingProxyType(
    {
        "wall_ns": lambda d: ((s.round, s.wall_ns) for s in d.steady() if s.wall_ns is not None),
        "host_ns": lambda d: ((s.round, s.host_ns) for s in d.steady() if s.host_ns is not None),
        "gpu_span_ns": lambda d: (
            (s.round, s.gpu_span_ns) for s in (d.steady() if d.in_loop else d.of("events")) if s.gpu_span_ns is not None
        ),
        "gpu_busy_ns": lambda d: summed(
            (split.index, device.busy.busy_ns) for split, device in d.recording("profiled-cuda").seen
        ),
        "pipelined_ns": lambda d: ((s.round, s.wall_ns / s.calls) for s in d.of("pipelined") if s.wall_ns is not None),
    }
)


def compare_runs(
    base: Side,
    cand: Side,
    *,
    facts: Sequence[str] = ("wall_ns",),
    threshold: float = THRESHOLD,
    band: float = SAME_BAND,
) -> RunComparison:
    """Compare the cells that both runs have, in the order of the base; `facts` are names of `SERIES`."""
    known = {cell.id: cell for cell in cand.results.cells}
    mine = {cell.id for cell in base.results.cells}
    rows = tuple(
        _row(name, (base, cell), (cand, known[cell.id]), threshold, band)
        for cell in base.results.cells
        if cell.id in known
        for name in facts
        if name in cell.facts and name in known[cell.id].facts
    )
    return RunComparison(
        base=base.raw.record.run,
        cand=cand.raw.record.run,
        threshold=threshold,
        band=band,
        differences=differences(base.raw.record, cand.raw.record),
        rows=rows,
        means=_means(rows, base, cand, band),
        only_base=tuple(cell.id for cell in base.results.cells if cell.id not in known),
        only_cand=tuple(cell.id for cell in cand.results.cells if cell.id not in mine),
        decision=decide([row.gate for row in rows]),
    )


def decide(gates: Sequence[GateVerdict | None]) -> Decision:
    """No-go when a gate fails; go when every gate there is passes, and one does; otherwise nothing is established."""
    told = [gate for gate in gates if gate is not None]
    if "fail" in told:
        return "no-go"
    return "go" if told and all(gate == "pass" for gate in told) else "not-established"


def gate_of(interval: Interval, rounds: int, threshold: float) -> GateVerdict:
    """Whether a ratio is a regression: only where its whole interval lies on one side of 1 + threshold is it said."""
    low, high = interval
    if rounds >= MIN_ROUNDS and high <= 1 + threshold:
        return "pass"
    return "fail" if rounds >= MIN_ROUNDS and low > 1 + threshold else "not-established"


def _row(name: str, base: tuple[Side, CellResult], cand: tuple[Side, CellResult], threshold: float, band: float) -> Row:
    (_, one), (_, other) = base, cand
    facts = (one.facts[name], other.facts[name])
    fit = [may_enter_ratio(fact, interleaved=False) for fact in facts]
    rounds = [_rounds(name, side, cell) for side, cell in (base, cand)]
    counts = (len(rounds[0]), len(rounds[1]))
    why = _why_not(facts, fit) or _too_few(rounds)
    if why is not None:
        # A figure that the base had and the candidate lost is a question; one that the base never had is none.
        gate: GateVerdict | None = "not-established" if fit[0] else None
        return Row(
            cell=one.id, fact=name, base=facts[0], cand=facts[1], ratio=None, interval=None, rounds=counts,
            verdict="not-established", why=why, gate=gate,
        )  # fmt: skip
    ratio, interval = log_ratio(*rounds)
    verdict, why = judge(interval, min(counts), band)
    return Row(
        cell=one.id, fact=name, base=facts[0], cand=facts[1], ratio=ratio, interval=interval, rounds=counts,
        verdict=verdict, why=why, gate=gate_of(interval, min(counts), threshold),
    )  # fmt: skip


def _means(rows: Sequence[Row], base: Side, cand: Side, band: float) -> tuple[ShapesMean, ...]:
    records = [{record.id: record for record in side.raw.record.cells} for side in (base, cand)]
    calls: dict[tuple[str, str], dict[str, tuple[Medians, Medians]]] = {}
    for row in rows:
        if row.ratio is not None:
            key = records[0][row.cell].key
            sides = zip((base, cand), records, strict=True)
            one, other = (_by_round(SERIES[row.fact](gather(side.raw, known[row.cell]))) for side, known in sides)
            call = "/".join((key.workload, key.path, key.context, key.mode, key.phase, "*", key.dtype))
            calls.setdefault((call, row.fact), {})[key.extents] = (one, other)
    return tuple(mean_of_shapes(*call, shapes, band) for call, shapes in calls.items() if len(shapes) > 1)


def _by_round(pairs: Iterable[tuple[int, float]]) -> Medians:
    rounds: dict[int, list[float]] = {}
    for number, value in pairs:
        rounds.setdefault(number, []).append(value)
    return {number: median(values) for number, values in rounds.items()}


def _rounds(name: str, side: Side, cell: CellResult) -> tuple[float, ...]:
    record = next(record for record in side.raw.record.cells if record.id == cell.id)
    return round_medians(SERIES[name](gather(side.raw, record)))


def _why_not(facts: tuple[Fact, Fact], fit: Sequence[bool]) -> str | None:
    """Which side has no figure that a ratio may be made from, and why."""
    sides = zip(("base", "candidate"), facts, fit, strict=True)
    return "; ".join(f"{side} {_refused(fact)}" for side, fact, good in sides if not good) or None


def _refused(fact: Fact) -> str:
    if fact.value is None:
        return f"missing: {fact.detail}"
    withdrawn = next((reason.text for reason in fact.reasons if reason.rule == RETRACTED), None)
    if withdrawn is not None:
        return f"retracted: {withdrawn}"
    return f"refused by {' '.join(dict.fromkeys(reason.rule for reason in fact.reasons))}"


def _too_few(rounds: Sequence[Sequence[float]]) -> str | None:
    if min(map(len, rounds)) < FEWEST:
        return f"{len(rounds[0])} and {len(rounds[1])} rounds; an interval needs {FEWEST} of each run"
    return "a round's median is 0: below the clock's resolution" if min(map(min, rounds)) <= 0 else None
