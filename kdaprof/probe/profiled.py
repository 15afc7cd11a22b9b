"""Profiled repeats of one cell, in a child: twice recorded (CUDA only, then CPU + CUDA), kept as timelines."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from kdaprof.instruments.clock import Clock, MonotonicClock
from kdaprof.instruments.cuda_device import open_device
from kdaprof.instruments.device import Device
from kdaprof.instruments.kineto import record
from kdaprof.instruments.nvtx import in_range, open_ranges
from kdaprof.kda.stages import watched
from kdaprof.probe.child import ChildCell, ChildSpec
from kdaprof.probe.graph_case import capture_case
from kdaprof.probe.series import Case, Series
from kdaprof.runs.record import Profiled
from kdaprof.runs.store import timeline_name
from kdaprof.timeline import kineto as reader
from kdaprof.timeline import parquet
from kdaprof.workloads.op import CaseSpec, OpCase

Kind = Literal["profiled-cuda", "profiled-full"]
_WARMUP = 3


def profile_cell(spec: CaseSpec, child: ChildSpec) -> ChildCell:
    """Record the cell's repeats and write its timelines into the run. Same inputs and seeds as in the parent."""
    device, clock = open_device(spec.device), MonotonicClock()
    eager = OpCase(spec)
    case: Case = eager
    eager.prepare(0)
    eager.run()
    if spec.key.mode == "graph":
        graph, capture = capture_case(
            eager, flush_bytes=2 * (device.traits.l2_bytes or 0) if spec.input_sets > 1 else 0
        )
        if graph is None:
            return ChildCell(cell=spec.key.id, missing={"gpu_busy_ns": f"capture failed: {capture.error}"})
        case = graph
    series = Series(spec.key, case)
    made: list[Profiled] = []
    missing: dict[str, str] = {}
    kinds: tuple[tuple[Kind, int], ...] = (("profiled-cuda", child.effort.profiled),)
    if spec.key.mode == "eager":
        kinds = (*kinds, ("profiled-full", child.effort.profiled_full))
    for kind, repeats in kinds:
        profiled, reason = _record(series, device, clock, kind, repeats, Path(child.out))
        made.append(profiled)
        if reason:
            missing["gpu_busy_ns"] = reason
    return ChildCell(cell=spec.key.id, samples=tuple(series.samples), profiled=tuple(made), missing=missing)


def _record(
    series: Series, device: Device, clock: Clock, kind: Kind, repeats: int, out: Path
) -> tuple[Profiled, str | None]:
    ranges = open_ranges()
    with (
        tempfile.TemporaryDirectory(prefix="kdaprof-trace-") as folder,
        in_range(ranges, series.key.id, "cell"),
        watched(lambda name: in_range(ranges, name, "stage")),
    ):
        recording = record(
            series.case.run,
            repeats,
            mode="cuda" if kind == "profiled-cuda" else "full",
            device=device,
            clock=clock,
            out_path=Path(folder) / "trace.json.gz",
            warmup=_WARMUP,
            stage=lambda _: series.case.prepare(series.next_input()),
        )
        timeline = reader.read(recording.path)
    name = timeline_name(series.key, kind)
    parquet.write(out / name, timeline)
    for repeat in recording.repeats:
        series.add(kind, repeat.index, repeat.t_ns, host_ns=repeat.host_ns, wall_ns=repeat.wall_ns)
    return Profiled(kind=kind, timeline=name, repeats=repeats), recording.missing
