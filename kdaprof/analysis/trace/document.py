"""The document `kdaprof.analysis/1`: what `kdaprof analyze --json` prints. Figures are counted, so plain integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from typing import Any

import msgspec

from kdaprof import __version__
from kdaprof.analysis.trace.bound import THRESHOLDS
from kdaprof.analysis.trace.devices import DeviceReport, TraceReport
from kdaprof.analysis.trace.idle import IdleSplit
from kdaprof.analysis.trace.operators import OperatorRow
from kdaprof.analysis.trace.ranks import RankRow, rank_of
from kdaprof.analysis.trace.verdict import next_step, overall, verdict_text
from kdaprof.runs.codec import to_json

SCHEMA = "kdaprof.analysis/1"
GRADES = ("good", "partial", "unfit")
LISTED = 50
"""Rows of operators, modules and kernels in the document: beyond them only their sum matters."""

Json = dict[str, Any]  # a document on its way out: built here, validated against the shipped JSON Schema in tests


def analysis_document(reports: Sequence[TraceReport], *, command: Sequence[str], ranks: Sequence[RankRow] = ()) -> Json:
    """One document for one or many traces; every row names its file by its place in `files`."""
    decision = overall(reports)
    devices = [(place, device) for place, report in enumerate(reports) for device in report.devices]
    return {
        "schema": SCHEMA,
        "tool": f"kdaprof {__version__}",
        "command": list(command),
        "complete": all(report.source.complete for report in reports),
        "files": [_file(report) for report in reports],
        "quality": _quality(reports),
        "devices": [_device(place, reports[place], device) for place, device in devices],
        "steps": [_step(place, step) for place, device in devices for step in device.steps],
        "phases": [
            {"file": place, "device": device.device, **asdict(phase)}
            for place, device in devices
            for phase in device.phases
        ],
        "outside_phases": [
            {"file": place, "device": device.device, **asdict(device.outside)} for place, device in devices
        ],
        "operators": _operators(devices, "operators"),
        "modules": _operators(devices, "modules"),
        "kernels": [
            {"file": place, "device": device.device, **asdict(row), "kind": row.kind.name.lower()}
            for place, device in devices
            for row in device.kernels[:LISTED]
        ],
        "launches": {
            "by_api": [
                {"file": place, "device": device.device, **asdict(row)}
                for place, device in devices
                for row in device.launches
            ],
            "queue": [
                {"file": place, "device": device.device, **to_json(device.queue)}
                for place, device in devices
                if device.queue is not None
            ],
        },
        "paths": [
            {"file": place, "device": device.device, **asdict(row)} for place, device in devices for row in device.paths
        ],
        "counterfactual": [_counterfactual(place, device) for place, device in devices if device.counterfactual],
        "ranks": [asdict(row) for row in ranks],
        "findings": [
            {"file": place, **to_json(finding)} for place, report in enumerate(reports) for finding in report.findings
        ],
        "verdict": {
            "bound": decision.bound,
            "share": decision.share,
            "idle_share": decision.idle_share,
            "why": decision.why,
            "text": verdict_text(reports, decision),
            "next": next_step(reports, decision),
            "thresholds": dict(THRESHOLDS),
        },
    }


def analysis_schema() -> Json:
    """The JSON Schema (2020-12) of the document, as shipped in the package."""
    raw = resources.files("kdaprof.runs").joinpath("schemas/analysis-1.json").read_bytes()
    schema: Json = msgspec.json.decode(raw)
    return schema


def _file(report: TraceReport) -> Json:
    source = report.source
    return {
        "path": source.path,
        "format": source.format,
        "rank": rank_of(source.path or "", source.rank),
        "world_size": source.world_size,
        "base_ns": source.base_ns,
        "complete": source.complete,
        "records": source.counts.read,
        "events": source.counts.kept,
        "host_span_ns": report.host_ns,
        "verdict": report.decision.bound,
    }


def _quality(reports: Sequence[TraceReport]) -> Json:
    """Sums over the files; the verdict is that of the worst one."""
    parts = [report.quality for report in reports]
    counts = (
        "device_events", "orphans", "orphans_at_head", "out_of_order", "overlapping", "empty_steps", "repaired",
        "dropped",
    )  # fmt: skip
    named = len(parts) > 1
    return {
        "verdict": max((part.verdict for part in parts), key=GRADES.index),
        **{name: sum(getattr(part, name) for part in parts) for name in counts},
        "notes": [
            f"{report.source.path}: {note}" if named else note for report in reports for note in report.quality.notes
        ],
    }


def _device(place: int, report: TraceReport, device: DeviceReport) -> Json:
    return {
        "file": place,
        "device": device.device,
        "name": device.name,
        "rank": rank_of(report.source.path or "", report.source.rank),
        "start_ns": device.busy.start_ns,
        "span_ns": device.span_ns,
        "busy_ns": device.busy_ns,
        "kernel_busy_ns": device.busy.kernel_busy_ns,
        "copy_busy_ns": device.busy.copy_busy_ns,
        "stream_overlap_ns": device.busy.overlap_ns,
        "copy_overlap_ns": device.busy.copy_overlap_ns,
        "idle_ns": device.idle.total_ns,
        "idle_classes": _classes(device.idle),
        "drained_by_sync_ns": device.drained_by_sync_ns,
        "starved_ns": device.starved_ns,
        "queued_ns": device.queued_ns,
        "launch_latency_ns": device.latency_ns,
        "events": device.busy.events,
        "launches": sum(row.calls for row in device.launches),
        "bound": device.decision.bound,
        "share": device.decision.share,
    }


def _step(place: int, step: Any) -> Json:
    document = asdict(step)
    idle, lead = document.pop("idle"), document.pop("lead")
    return {
        "file": place,
        **document,
        "idle_ns": sum(idle.values()),
        "idle_classes": idle,
        "lead_ns": sum(lead.values()),
        "lead_classes": lead,
    }


def _classes(idle: IdleSplit) -> Json:
    return dict(idle.by_class())


def _operators(devices: Sequence[tuple[int, DeviceReport]], which: str) -> list[Json]:
    found: list[Json] = []
    for place, device in devices:
        rows: tuple[OperatorRow, ...] = getattr(device, which)
        found += [{"file": place, "device": device.device, **asdict(row)} for row in rows[:LISTED]]
    return found


def _counterfactual(place: int, device: DeviceReport) -> Json:
    assert device.counterfactual is not None  # asked for before
    document = asdict(device.counterfactual)
    document["blockers"] = [{"what": what, "count": count} for what, count in device.counterfactual.blockers]
    return {"file": place, "device": device.device, "provenance": "derived", **document}
