"""One probe from plan to run directory: everything is on disk the moment it is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from kdaprof import __version__
from kdaprof.instruments.clock import clock_pair
from kdaprof.instruments.nvtx import in_range
from kdaprof.probe.ceilings import measure_ceilings
from kdaprof.probe.child import ChildCell, ChildResult, ChildSpec
from kdaprof.probe.cold import empty_caches
from kdaprof.probe.costs import own_costs
from kdaprof.probe.declared import input_sets, observed_before
from kdaprof.probe.failures import describe
from kdaprof.probe.group import GroupMeasurement, GroupOutcome
from kdaprof.probe.interpreted import ENVIRONMENT as INTERPRETED
from kdaprof.probe.lab import Lab
from kdaprof.probe.plan import Group, Plan
from kdaprof.probe.series import Series
from kdaprof.runs.cells import DTYPE_BYTES, CellKey
from kdaprof.runs.conditions import Conditions, ConditionsSnapshot
from kdaprof.runs.environment import Secrets, anonymised, scrub
from kdaprof.runs.ids import new_run_id
from kdaprof.runs.record import CellError, CellRecord, Observed, RunRecord
from kdaprof.runs.samples import Sample
from kdaprof.runs.store import UTIL_FILE, RunWriter, open_target
from kdaprof.runs.util import UtilReading, write_util
from kdaprof.workloads.op import CaseSpec

T = TypeVar("T")
_CHILD_START_S = 120.0
_PENDING = CellError(type="NotMeasured", text="the run ended before this cell was measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOutcome:
    """Where the run lies and how it ended."""

    path: Path
    record: RunRecord
    interrupted: bool


def run_probe(plan: Plan, lab: Lab) -> ProbeOutcome:
    """Measure every cell of `plan` into its run directory.

    Ctrl-C (KeyboardInterrupt) ends the measuring, keeps every finished cell and marks the run partial.
    Errors: UsageError or TargetError, before anything is measured, when the target cannot take a run.
    """
    session = _Session(plan, lab, open_target(plan.out, force=plan.force))
    interrupted = False
    try:
        session.measure()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        lab.progress.close()
    session.finish(complete=not interrupted)
    return ProbeOutcome(path=plan.out, record=session.record, interrupted=interrupted)


class _Session:
    def __init__(self, plan: Plan, lab: Lab, writer: RunWriter) -> None:
        self.plan, self.lab, self.writer = plan, lab, writer
        self._secrets: Secrets | None = lab.secrets() if plan.anonymous else None
        self._during: list[ConditionsSnapshot] = []
        self._util: list[UtilReading] = []
        pair = clock_pair(lab.bench.clock)
        environment = lab.environment()
        self.record = RunRecord(
            run=new_run_id(plan.slug),
            tool=f"kdaprof {__version__}",
            command=plan.command,
            started_unix_ns=pair.unix_ns,
            started_monotonic_ns=pair.monotonic_ns,
            complete=False,
            environment=anonymised(environment, self._secrets) if self._secrets else environment,
            conditions=Conditions(None, (), None),
            cells=tuple(CellRecord(key=key, status="skipped", error=_PENDING) for key in plan.cells()),
        )

    def measure(self) -> None:
        groups = tuple(self.plan.groups())
        self.lab.progress.start(2 + 2 * len(groups) + (len(self.plan.cells()) if self.plan.cold else 0))
        self._update(conditions=replace(self.record.conditions, before=self.lab.snapshot(True)))
        self.lab.progress.advance("ceilings of the card")
        bench = self.lab.bench
        self._update(ceilings=self._tried("ceilings", lambda: measure_ceilings(bench.device, bench.clock)))
        self._update(overhead=self._tried("own costs", lambda: own_costs(bench)))
        ranges = self.lab.bench.ranges
        with in_range(ranges, self.record.run, "run"):
            for group in groups:
                self.lab.progress.advance(f"{group.name}: timing {', '.join(self.plan.paths)}")
                with in_range(ranges, group.name, "phase"):
                    self._group(group)

    def _tried(self, what: str, measure: Callable[[], tuple[T, ...]]) -> tuple[T, ...]:
        """What an instrument of the whole run measured; one that fails (no memory left on the card) leaves a note."""
        try:
            return measure()
        except Exception as error:
            told = describe(error)
            self._update(notes=(*self.record.notes, f"{what} not measured: {told.type}: {told.text}"))
            return ()

    def finish(self, *, complete: bool) -> None:
        """Close the record: conditions after, end times, partial or complete."""
        pair = clock_pair(self.lab.bench.clock)
        after = self.lab.snapshot(complete)
        conditions = Conditions(self.record.conditions.before, tuple(self._during), after)
        self._update(
            conditions=conditions, complete=complete, ended_unix_ns=pair.unix_ns, ended_monotonic_ns=pair.monotonic_ns
        )

    def _group(self, group: Group) -> None:
        specs = tuple(self._spec(key) for key in group.keys)
        observed = {s.key.id: observed_before(s, self.lab.bench.device, cache=self.plan.cache) for s in specs}
        interpreted = [s for s in specs if self._needs_interpreter(s)]
        here = [s for s in specs if s not in interpreted]
        if here:
            group_of = GroupMeasurement(here, observed, self.lab.bench, self.plan.effort, self._after_round)
            self._store(group_of.run())
        if interpreted:
            self._interpret(interpreted, observed)
        self.lab.progress.advance(f"{group.name}: profiled repeats")
        self._profile(specs)
        if self.plan.cold:
            self._cold(specs)

    def _spec(self, key: CellKey) -> CaseSpec:
        width = DTYPE_BYTES[key.dtype]
        tokens = key.size("B") * key.size("T") * key.size("H")
        set_bytes = tokens * (3 * key.size("K") + 2 * key.size("V") + 1) * width
        count = input_sets(set_bytes, self.lab.bench.device, cache=self.plan.cache)
        return CaseSpec(key=key, device=self.plan.device, seed=self.plan.seed, input_sets=count)

    def _needs_interpreter(self, spec: CaseSpec) -> bool:
        return spec.key.path == "fused" and not self.plan.on_gpu and spec.key.mode == "eager"

    def _after_round(self, _number: int, live: Sequence[Series]) -> None:
        """Samples reach the disk each round; the conditions are looked at, lightly."""
        for series in live:
            self.writer.put_samples(series.key, series.samples)
        self._during.append(self.lab.snapshot(False))

    def _store(self, outcome: GroupOutcome) -> None:
        for cell in outcome.cells:
            samples = outcome.samples.get(cell.id, ())
            if samples:
                self.writer.put_samples(cell.key, samples)
            self._put_cell(cell)
        self._util.extend(outcome.util)
        if self._util:
            write_util(self.writer.path / UTIL_FILE, self._util)
        self._update(notes=(*self.record.notes, *outcome.notes))

    def _interpret(self, specs: Sequence[CaseSpec], observed: dict[str, Observed]) -> None:
        """Few samples: the interpreter shows that the kernels are right; Q08 refuses its times."""
        effort = replace(self.plan.effort, rounds=1, rounds_most=1, samples=2, warmup=0, util_seconds=0)
        child = ChildSpec(task="interpret", cases=tuple(specs), effort=effort, out=str(self.writer.path))
        timeout = _CHILD_START_S + len(specs) * 4 * effort.cell_seconds
        result = self.lab.spawn(child, env=INTERPRETED, timeout_s=timeout)
        for spec in specs:
            cell = result.of(spec.key.id)
            if cell is not None and cell.record is not None:
                if cell.samples:
                    self.writer.put_samples(spec.key, cell.samples)
                self._put_cell(cell.record)
                continue
            unknown = CellError(type="WorkerError", text=result.failure or "the worker process left no result")
            seen = replace(observed[spec.key.id], interpreted=True)
            error = cell.error if cell is not None and cell.error is not None else unknown
            self._put_cell(CellRecord(key=spec.key, status="failed", error=error, observed=seen))

    def _profile(self, specs: Sequence[CaseSpec]) -> None:
        wanted = tuple(s for s in specs if self._cell(s.key).status == "ok")
        if not wanted or not self.plan.on_gpu:
            return
        effort = self.plan.effort
        child = ChildSpec(task="profile", cases=wanted, effort=effort, out=str(self.writer.path))
        timeout = _CHILD_START_S + len(wanted) * 2 * effort.cell_seconds
        result = self.lab.spawn(child, env={}, timeout_s=timeout)
        for spec in wanted:
            self._merge(spec.key, result.of(spec.key.id), result)

    def _cold(self, specs: Sequence[CaseSpec]) -> None:
        for spec in specs:
            self.lab.progress.advance(f"{spec.key.path} {spec.key.phase}: cold start, empty caches")
            if spec.key.mode != "eager" or self._cell(spec.key).status != "ok" or not self.plan.on_gpu:
                continue
            for _ in range(self.plan.effort.cold_runs):
                child = ChildSpec(task="cold", cases=(spec,), effort=self.plan.effort, out=str(self.writer.path))
                with empty_caches() as env:
                    result = self.lab.spawn(child, env=env, timeout_s=_CHILD_START_S + 600)
                self._merge(spec.key, result.of(spec.key.id), result, fact="cold_ns")
                if any((s.wall_ns or 0) > 10e9 for s in (result.of(spec.key.id) or ChildCell(cell="")).samples):
                    break

    def _merge(self, key: CellKey, cell: ChildCell | None, result: ChildResult, fact: str = "gpu_busy_ns") -> None:
        """Put what a child saw of a cell beside what was seen here; a child's failure is a reason, not an end."""
        record = self._cell(key)
        assert record.observed is not None
        missing = dict(record.observed.missing)
        if cell is None:
            missing[fact] = result.failure or "the worker process left no result"
        elif cell.error is not None:
            missing[fact] = f"{cell.error.type}: {cell.error.text}"
        else:
            missing |= cell.missing
        profiled = (*record.observed.profiled, *(cell.profiled if cell else ()))
        self._put_cell(replace(record, observed=replace(record.observed, profiled=profiled, missing=missing)))
        if cell is not None and cell.samples:
            self.writer.put_samples(
                key, (*self.writer.samples(key), *_renumbered(self.writer.samples(key), cell.samples))
            )

    def _cell(self, key: CellKey) -> CellRecord:
        return next(cell for cell in self.record.cells if cell.key == key)

    def _put_cell(self, cell: CellRecord) -> None:
        cells = tuple(cell if old.key == cell.key else old for old in self.record.cells)
        self._update(cells=cells)

    def _update(self, **changes: object) -> None:
        record = replace(self.record, **changes)  # type: ignore[arg-type]
        self.record = scrub(record, self._secrets) if self._secrets else record
        self.writer.put_record(self.record)


def _renumbered(before: Sequence[Sample], fresh: Sequence[Sample]) -> tuple[Sample, ...]:
    """Indices go on where the cell's samples of that kind left off: each child counts from 0."""
    seen = {repeat: sum(1 for s in before if s.repeat == repeat) for repeat in {s.repeat for s in fresh}}
    return tuple(replace(sample, index=sample.index + seen[sample.repeat]) for sample in fresh)
