"""Diagnoses of a run: each one sentence with its numbers, the threshold it crossed and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kdaprof.analysis.findings import compare, device, graph, host, loop, machine, memory, path, precision, steady, warm
from kdaprof.analysis.findings.path import CONTRADICTED
from kdaprof.analysis.view import CellView
from kdaprof.runs.results import Finding, Severity

Detector = Callable[[Sequence[CellView]], Iterable[Finding]]

DETECTORS: tuple[Detector, ...] = (
    path.contradicted,
    path.wrong,
    path.no_backward,
    path.not_proven,
    path.fell_back,
    machine.card_shared,
    machine.clocks_limited,
    machine.host_loaded,
    machine.clocks_moved,
    warm.not_warm,
    warm.pool_grew,
    memory.never_reused,
    steady.retuning,
    steady.drift,
    warm.spikes,
    graph.capture_failed,
    graph.input_copies,
    host.host_bound,
    host.queue_full,
    host.inflation,
    device.utilisation_disagrees,
    device.beaten_floor,
    compare.slower_though_gpu_fast,
    precision.tf32_slower,
    compare.compared,
    compare.peak_memory,
    warm.cold_start,
    loop.left_attached,
    loop.own_cost,
)
_RANK: dict[Severity, int] = {"error": 0, "warn": 1, "info": 2}


def find(views: Sequence[CellView]) -> tuple[Finding, ...]:
    """All findings of a run whose views hold judged figures; a figure that a rule refuses is never cited.

    Order: severity, a contradicted path before everything; findings of the run before those of its cells; cells in
    the order of `views`; then the order of the detectors.
    """
    places = {view.cell.id: place for place, view in enumerate(views)}
    # What is wrong with a watched loop is said once, of its steps; its phases stand in the tables.
    told = tuple(view for view in views if not loop.is_part(view))
    found = [finding for detect in DETECTORS for finding in detect(told)]
    return tuple(sorted(found, key=lambda f: _order(f, places)))


def _order(finding: Finding, places: dict[str, int]) -> tuple[int, bool, int]:
    place = places[finding.cell] if finding.cell is not None else -1
    return (_RANK[finding.severity], finding.id != CONTRADICTED, place)
