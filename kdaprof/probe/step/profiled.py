"""Profiled steps, in a child: one recording with the borders of phases and of the op's calls serves all cells."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from kdaprof.instruments.clock import MonotonicClock
from kdaprof.instruments.cuda_device import open_device
from kdaprof.instruments.device import Device
from kdaprof.instruments.kineto import InnerRange, record
from kdaprof.probe.child import ChildCell, ChildSpec, StepTask
from kdaprof.probe.series import Series
from kdaprof.probe.step.bordered import PHASE_RANGE, STEP_RANGE, CallTimes, run_bordered
from kdaprof.probe.step.capture import capture_step
from kdaprof.runs.record import Profiled
from kdaprof.runs.store import timeline_name
from kdaprof.timeline import kineto as reader
from kdaprof.timeline import parquet
from kdaprof.workloads.step.case import PhasedCase
from kdaprof.workloads.step.opening import open_step

Kind = Literal["profiled-cuda", "profiled-full"]
_WARMUP = 3


def profile_step(task: StepTask, child: ChildSpec) -> ChildCell:
    """Record a step in its mode and write its timelines into the run; the parent gives them to the step's cells."""
    spec, mode = task.spec, task.mode
    key = spec.key.sibling(mode=mode)
    device, clock = open_device(spec.device), MonotonicClock()
    case: PhasedCase
    if mode == "eager":
        case = open_step(spec)
    else:
        made = capture_step(spec, mode, lambda: 0)
        if made.case is None:
            return ChildCell(cell=key.id, missing={"gpu_busy_ns": f"capture failed: {made.capture.error}"})
        case = made.case
    series, recorder = Series(key, case), Recorder(case, device, clock)
    kinds: tuple[tuple[Kind, int], ...] = (("profiled-cuda", child.effort.profiled),)
    if mode == "eager" and child.effort.profiled_full and not task.brief:
        kinds = (*kinds, ("profiled-full", child.effort.profiled_full))
    profiled, missing = [], {}
    for kind, repeats in kinds:
        with tempfile.TemporaryDirectory(prefix="kdaprof-trace-") as folder:
            recording = record(
                recorder.run,
                repeats,
                mode="cuda" if kind == "profiled-cuda" else "full",
                device=device,
                clock=clock,
                out_path=Path(folder) / "trace.json.gz",
                warmup=_WARMUP,
                stage=lambda _: case.prepare(series.next_input()),
                inner=recorder.ranges,
            )
            timeline = reader.read(recording.path)
        name = timeline_name(key, kind)
        parquet.write(Path(child.out) / name, timeline)
        profiled.append(Profiled(kind=kind, timeline=name, repeats=repeats))
        for repeat in recording.repeats:
            series.add(kind, repeat.index, repeat.t_ns, host_ns=repeat.host_ns, wall_ns=repeat.wall_ns)
        if recording.missing:
            missing["gpu_busy_ns"] = recording.missing
    return ChildCell(cell=key.id, samples=tuple(series.samples), profiled=tuple(profiled), missing=missing)


class Recorder:
    """Runs a step with its borders taken, and gives them as ranges for the trace."""

    def __init__(self, case: PhasedCase, device: Device, clock: MonotonicClock) -> None:
        self._case, self._device, self._clock = case, device, clock
        self._steps = 0
        self._ranges: tuple[InnerRange, ...] = ()

    def run(self) -> None:
        """One step."""
        times = CallTimes(self._clock)
        self._case.watch.mark = times.mark
        try:
            borders = run_bordered(self._case, self._device, self._clock)
        finally:
            self._case.watch.mark = None
        end = borders[-1].start_ns + borders[-1].wall_ns
        self._ranges = (
            InnerRange(f"{STEP_RANGE}{self._steps}", borders[0].start_ns, end),
            *(InnerRange(f"{PHASE_RANGE}{b.phase}", b.start_ns, b.start_ns + b.wall_ns) for b in borders),
            *times.ranges(),
        )
        self._steps += 1

    def ranges(self) -> tuple[InnerRange, ...]:
        """The ranges of the last step."""
        return self._ranges
