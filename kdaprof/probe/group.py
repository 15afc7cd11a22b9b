"""One group of cells, from cases to samples: first call, check against the reference, capture, rounds, side figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from kdaprof.errors import UnavailableError
from kdaprof.instruments.card import CardReadings
from kdaprof.instruments.timing import time_call
from kdaprof.probe.bench import Bench
from kdaprof.probe.check import compare, reference, tolerance_of
from kdaprof.probe.failures import describe, status_of
from kdaprof.probe.graph_case import GraphCase, capture_case, flush_bytes
from kdaprof.probe.library import observe_choice, settings_kept
from kdaprof.probe.plan import Effort
from kdaprof.probe.rounds import (
    WARMUP_ROUND,
    allocator_repeats,
    event_repeats,
    measure_rounds,
    one_sample,
    warm_up,
)
from kdaprof.probe.series import Series
from kdaprof.probe.sustained import sustained
from kdaprof.probe.witness import observe_gate
from kdaprof.runs.cells import CellKey
from kdaprof.runs.record import Capture, CellRecord, GateObservation, Observed
from kdaprof.runs.samples import Sample
from kdaprof.runs.util import UtilReading
from kdaprof.workloads.inputs import Inputs
from kdaprof.workloads.library import LIBRARIES
from kdaprof.workloads.op import CaseSpec, OpCase, trains

CARD_BESIDE = ("gemm",)
"""Workloads bound by the card alone: its clock, power and temperature decide what they take."""

RoundHook = Callable[[int, Sequence[Series]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """What a group's measuring left: records and samples by cell, utilisation readings, notes."""

    cells: tuple[CellRecord, ...]
    samples: dict[str, tuple[Sample, ...]]
    util: tuple[UtilReading, ...] = ()
    notes: tuple[str, ...] = ()


class GroupMeasurement:
    """Measures the cells of one context and phase. A cell that fails is an error in its own place."""

    def __init__(
        self, specs: Sequence[CaseSpec], declared: dict[str, Observed], bench: Bench, effort: Effort, hook: RoundHook
    ) -> None:
        self._specs = tuple(specs)
        card = bench.sensor.value if specs[0].key.workload in CARD_BESIDE else None
        self._card = None if card is None else CardReadings(card)
        self._bench = bench if self._card is None else replace(bench, beside=self._card.read)
        self._effort = effort
        self._hook = hook
        self._records = {
            spec.key.id: CellRecord(key=spec.key, status="ok", observed=declared[spec.key.id]) for spec in specs
        }
        self._series: dict[str, Series] = {}
        self._eager: dict[CellKey, OpCase] = {}
        self._sets: dict[str, tuple[Inputs, ...]] = {}
        self._expected: dict[tuple[str, bool], dict[str, torch.Tensor]] = {}

    def run(self) -> GroupOutcome:
        """Everything that this process measures of the group."""
        with settings_kept(self._specs[0].key.workload):
            return self._run()

    def _run(self) -> GroupOutcome:
        try:
            for spec in self._specs:  # paths of one dtype share their inputs
                if spec.key.dtype not in self._sets:
                    self._sets[spec.key.dtype] = tuple(spec.make_set(index) for index in range(spec.input_sets))
        except Exception as error:  # inputs that do not fit are every cell's failure, not the run's
            for spec in self._specs:
                self._fail(spec.key, error)
            return GroupOutcome(cells=tuple(self._records.values()), samples={})
        for spec in self._specs:
            self._attempt(spec.key, self._begin_eager if spec.key.mode == "eager" else self._begin_graph, spec)
        live = list(self._series.values())
        notes = measure_rounds(
            live,
            self._bench,
            self._effort,
            after_round=lambda number: self._hook(number, live),
            on_failure=lambda series, error: self._fail(series.key, error),
        )
        util: list[UtilReading] = [] if self._card is None else self._card.rows
        for series in live:
            if self._records[series.key.id].status == "ok":
                self._side_figures(series, util)
        return GroupOutcome(
            cells=tuple(self._records[spec.key.id] for spec in self._specs),
            samples={cell: tuple(series.samples) for cell, series in self._series.items()},
            util=tuple(util),
            notes=notes,
        )

    def _attempt(self, key: CellKey, work: Callable[..., None], *args: object) -> None:
        try:
            work(*args)
        except Exception as error:
            self._fail(key, error)

    def _fail(self, key: CellKey, error: Exception) -> None:
        self._records[key.id] = replace(self._records[key.id], status=status_of(error), error=describe(error))

    def _note(self, key: CellKey, **changes: object) -> None:
        record = self._records[key.id]
        assert record.observed is not None
        self._records[key.id] = replace(record, observed=replace(record.observed, **changes))  # type: ignore[arg-type]

    def _begin_eager(self, spec: CaseSpec) -> None:
        case = OpCase(spec, self._sets[spec.key.dtype])
        series = Series(spec.key, case)
        library = LIBRARIES.get(spec.key.workload)
        observe = observe_gate if library is None else partial(observe_choice, spec.key)
        # Step 0 is timed like every other call, and its outputs are the ones that are checked.
        gate = observe(lambda: one_sample(series, self._bench, WARMUP_ROUND))
        self._note(spec.key, gate=gate)
        check = compare(
            case.outputs(),
            self._reference(case, backward=trains(spec.key.phase)),
            against="float64 recurrence" if library is None else library.AGAINST,
            tolerance=tolerance_of(spec.key.path, spec.key.dtype) if library is None else library.tolerance(spec.key),
        )
        self._note(spec.key, check=check)
        self._eager[spec.key] = case
        warm_up(series, self._bench, self._effort)
        self._series[spec.key.id] = series

    def _begin_graph(self, spec: CaseSpec) -> None:
        if self._bench.device.kind != "cuda":
            self._skip(spec.key, "CUDA Graphs need a CUDA device")
            return
        eager = self._eager.get(spec.key.sibling(mode="eager"))
        if eager is None:
            self._skip(spec.key, "the eager cell that would be captured did not run")
            return
        flush = flush_bytes(spec, self._bench.device)
        made: list[tuple[GraphCase | None, Capture]] = []
        gate: GateObservation | None = observe_gate(
            lambda: made.append(capture_case(eager, flush_bytes=flush)), captured_only=True
        )
        if spec.key.workload in LIBRARIES:  # has no record of its decisions: see the eager cell
            gate = None
        case, capture = made[0]
        self._note(spec.key, capture=capture, check=capture.check, gate=gate)
        if case is None:
            self._fail_capture(spec.key, capture)
            return
        series = Series(spec.key, case)
        warm_up(series, self._bench, self._effort)
        self._series[spec.key.id] = series

    def _reference(self, case: OpCase, *, backward: bool) -> dict[str, torch.Tensor]:
        """What the case has to make: `o`, and the gradients that its context asks for."""
        key = (case.spec.key.dtype, backward)
        if key not in self._expected:
            library = LIBRARIES.get(case.spec.key.workload)
            make = reference if library is None else library.reference
            self._expected[key] = make(case.sets[0], backward=backward)
        wanted = {"o", *(f"d{name}" for name in case.wanted)}
        return {name: value for name, value in self._expected[key].items() if name in wanted}

    def _side_figures(self, series: Series, util: list[UtilReading]) -> None:
        """Figures beside the rounds; an instrument that fails leaves its own figures missing, with the reason."""
        bench, effort = self._bench, self._effort
        if series.key.mode == "graph":
            self._beside(series.key, ("input_copy_ns",), lambda: input_copies(series, bench, effort))
            return
        counted = ("allocs", "alloc_bytes", "peak_bytes")
        self._beside(series.key, ("gpu_span_ns",), lambda: event_repeats(series, bench, effort))
        self._beside(series.key, counted, lambda: allocator_repeats(series, bench, effort))
        sampled = ("util_mean", "util_idle_share")
        self._beside(series.key, sampled, lambda: util.extend(sustained(series, bench, effort)))

    def _beside(self, key: CellKey, figures: Sequence[str], work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            told = describe(error)
            seen = self._records[key.id].observed
            assert seen is not None
            self._note(key, missing=seen.missing | dict.fromkeys(figures, f"{told.type}: {told.text}"))

    def _skip(self, key: CellKey, text: str) -> None:
        error = UnavailableError(text)
        self._records[key.id] = replace(self._records[key.id], status="unavailable", error=describe(error))

    def _fail_capture(self, key: CellKey, capture: Capture) -> None:
        text = f"capture failed at {capture.operation or 'an operation'}" + (
            f" ({capture.where})" if capture.where else ""
        )
        error = describe(RuntimeError(f"{text}: {capture.error}"))
        self._records[key.id] = replace(
            self._records[key.id], status="failed", error=replace(error, type="CaptureFailure")
        )


def input_copies(series: Series, bench: Bench, effort: Effort) -> None:
    """What it costs to bring new inputs into a graph's static buffers: wall of the copies alone."""
    case = series.case
    assert isinstance(case, GraphCase)
    for number in range(max(effort.allocator, 5)):
        case.choose(number)
        timing = time_call(case.copy, bench.device, bench.clock)
        series.add("input-copy", 0, timing.t_ns, host_ns=timing.host_ns, wall_ns=timing.wall_ns)
