"""What one cell's figures are made from: its record, its samples, its recordings and the readings taken beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kdaprof.analysis.recordings import EMPTY, Recording, read_loop, read_recording
from kdaprof.analysis.view import RawRun, WarmUp, steady_of
from kdaprof.analysis.warmup import find_warmup
from kdaprof.runs.record import CellRecord, Observed, RunRecord
from kdaprof.runs.samples import Sample
from kdaprof.runs.util import UtilReading
from kdaprof.runs.util_file import FieldSeries, series_of
from kdaprof.timeline.columns import Timeline

OP_LINES = ("fwd.kda", "teacher.kda", "bwd.kda")
"""KDA's own part of a step: its calls inside two phases, and their backward inside a third."""

SETTLE_NS = 1_000_000_000
"""NVML's utilisation averages over up to 1 s: what is read in a loop's first second may be from before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellData:
    """One cell, raw. `util` holds the readings taken while its sustained loop ran."""

    run: RunRecord
    cell: CellRecord
    samples: tuple[Sample, ...]
    warmup: WarmUp
    recordings: Mapping[str, Recording]
    util: tuple[UtilReading, ...]
    op_calls: Mapping[str, Recording] = field(default_factory=dict)
    """Of a whole step: what the op's own calls launched, by line (`fwd.kda`, `teacher.kda`, `bwd.kda`)."""

    @property
    def in_loop(self) -> bool:
        """Whether the samples are borders of a running loop, between which nothing was synchronised."""
        return self.observed is not None and self.observed.borders == "loop"

    @property
    def observed(self) -> Observed | None:
        """What was seen of the cell beside samples."""
        return self.cell.observed

    def recording(self, kind: str) -> Recording:
        """The recording of one kind; an empty one where none was made."""
        return self.recordings.get(kind, EMPTY)

    def of(self, repeat: str) -> tuple[Sample, ...]:
        """The samples of one kind of repeat."""
        return tuple(sample for sample in self.samples if sample.repeat == repeat)

    def utilisation(self) -> FieldSeries:
        """The sampled utilisation of the sustained loop."""
        return series_of(reading for reading in self.util if reading.field == "util")

    def steady(self) -> tuple[Sample, ...]:
        """What the cell's times are taken from: see `steady_of`."""
        return steady_of(self.samples, self.warmup)


def gather(raw: RawRun, cell: CellRecord) -> CellData:
    """Everything that the run holds of one cell."""
    samples = tuple(raw.samples.get(cell.id, ()))
    series = sorted((s.index, s.wall_ns) for s in samples if s.repeat == "unprofiled" and s.wall_ns is not None)
    return CellData(
        run=raw.record,
        cell=cell,
        samples=samples,
        warmup=find_warmup(series),
        recordings={kind: _recording(cell, line) for (of, kind), line in raw.timelines.items() if of == cell.id},
        util=_beside(raw, samples),
        op_calls=_op_calls(raw, cell),
    )


def _op_calls(raw: RawRun, cell: CellRecord) -> dict[str, Recording]:
    seen, line = cell.observed, raw.timelines.get((cell.id, "profiled-cuda"))
    whole = cell.key.workload == "step" and cell.key.phase == "step" and cell.key.mode == "eager"
    if line is None or not whole or seen is None or seen.borders != "call":
        return {}
    return {name: read_loop(line, name) for name in OP_LINES}


def _recording(cell: CellRecord, line: Timeline) -> Recording:
    part = cell.observed is not None and cell.observed.borders in ("loop", "phase")
    return read_loop(line, cell.key.phase) if part else read_recording(line)


def _beside(raw: RawRun, samples: tuple[Sample, ...]) -> tuple[UtilReading, ...]:
    """Readings of the card in use, taken in the cell's sustained loop and not in its first second (if it is longer)."""
    loops = [(s.t_ns, s.t_ns + (s.wall_ns or 0)) for s in samples if s.repeat == "util"]
    if not loops:
        return ()
    start, end = min(begin for begin, _ in loops), max(stop for _, stop in loops)
    if end - start > 2 * SETTLE_NS:
        start += SETTLE_NS
    gpu = raw.record.environment.gpu
    mine = _bare(gpu.uuid) if gpu and gpu.uuid else None
    return tuple(
        reading
        for reading in raw.util
        if start <= reading.t_ns <= end and (mine is None or reading.uuid is None or _bare(reading.uuid) == mine)
    )


def _bare(uuid: str) -> str:
    """NVML writes `GPU-…` before what the CUDA runtime gives alone."""
    return uuid.removeprefix("GPU-").lower()
