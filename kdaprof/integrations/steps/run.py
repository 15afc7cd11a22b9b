"""The run directory of a loop: readable at every moment, samples in parts, so that a long loop stays cheap to store."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from operator import index
from pathlib import Path

import pyarrow as pa

from kdaprof import __version__
from kdaprof.analysis.loop_cost import STORE_COST
from kdaprof.errors import UsageError
from kdaprof.instruments.clock import clock_pair
from kdaprof.instruments.steps.rows import tables_of
from kdaprof.instruments.steps.spans import StepSpans
from kdaprof.instruments.steps.window import Kind
from kdaprof.integrations.steps.lab import NO_MARKS, LoopLab
from kdaprof.integrations.steps.live import since, traced_since
from kdaprof.kda.ledger import Counters
from kdaprof.kda.signatures import SIGNATURES
from kdaprof.runs import tables
from kdaprof.runs.cells import DTYPES, OWN_PATH, CellKey
from kdaprof.runs.conditions import Conditions, ConditionsSnapshot
from kdaprof.runs.environment import anonymised, anonymised_argv, scrub
from kdaprof.runs.record import CellRecord, GateObservation, Observed, OwnCost, Profiled, RunRecord
from kdaprof.runs.store import RunWriter
from kdaprof.timeline import parquet
from kdaprof.timeline.columns import Timeline
from kdaprof.timeline.loop_ranges import WHOLE

PART_STEPS = 1024
"""Steps of one part: a part is written again at each flush until it is full."""
_MOST_SNAPSHOTS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSpec:
    """What the caller says of the loop: it names the cells."""

    run: str
    shape: tuple[tuple[str, int], ...]
    dtype: str
    path: str | None
    context: str
    trains: bool
    anonymous: bool

    def __post_init__(self) -> None:
        if not self.shape:
            raise UsageError("shape is empty: name what a step works on, for example shape={'B': 8, 'T': 512}")
        wrong = [f"{axis}={size}" for axis, size in self.shape if size < 0 or not axis.isalnum()]
        if wrong:
            raise UsageError(f"shape has {', '.join(wrong)}: axes are letters and digits, sizes whole numbers from 0")
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype {self.dtype!r} is unknown; known: {', '.join(DTYPES)}")
        for name, text in (("path", self.path), ("context", self.context)):
            if text is not None and (not text or "/" in text):
                raise UsageError(f"{name} {text!r}: one word without a slash, for example {name}='plain'")


@dataclass(slots=True)
class LoopRun:
    """Steps come in by `add`; `flush` brings the directory up to date."""

    spec: LoopSpec
    lab: LoopLab
    writer: RunWriter
    before: Counters
    costs: tuple[OwnCost, ...]
    record: RunRecord = field(init=False)
    steps: int = 0
    notes: list[str] = field(default_factory=list)
    windows_missing: str | None = None
    _traced_before: Mapping[str, int] = field(init=False)
    _fresh: list[StepSpans] = field(default_factory=list)
    _tables: dict[CellKey, list[pa.Table]] = field(default_factory=dict)
    _stored_ns: int = 0
    _disk: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "kdaprof-store"))
    _writing: Future[None] | None = None
    _keys: list[CellKey] = field(default_factory=list)
    _part: int = 1
    _in_part: int = 0
    _whole: CellKey | None = None
    _tokens: int | None = None
    _profiled: list[Profiled] = field(default_factory=list)
    _during: list[ConditionsSnapshot] = field(default_factory=list)

    def __post_init__(self) -> None:
        tables.load()
        self._traced_before = dict(self.lab.traced())
        pair = clock_pair(self.lab.clock)
        found = self.lab.environment()
        secrets = self.lab.secrets() if self.spec.anonymous else None
        self.record = RunRecord(
            run=self.spec.run,
            tool=f"kdaprof {__version__}",
            command=anonymised_argv(found.argv, secrets) if secrets else found.argv,
            started_unix_ns=pair.unix_ns,
            started_monotonic_ns=pair.monotonic_ns,
            complete=False,
            environment=anonymised(found, secrets) if secrets else found,
            conditions=Conditions(self.lab.snapshot(True), (), None),
            overhead=self.costs,
        )
        self._put()

    def add(self, spans: StepSpans) -> None:
        """Keep a finished step; it reaches the disk with the next flush."""
        self.steps += 1
        self._fresh.append(spans)
        self._tokens = spans.tokens if spans.tokens is not None else self._tokens

    def add_window(self, timeline: Timeline, kind: Kind, first: int, steps: int) -> None:
        """Store the timeline of a profiled window. Errors: TargetError."""
        name = f"timeline-{self._cell().slug}-{kind}-{first:06d}.parquet"
        parquet.write(self.writer.path / name, timeline)
        self._profiled.append(Profiled(kind=kind, timeline=name, repeats=steps))

    def traced(self) -> dict[str, int]:
        """How often each path was traced into a compiled region since the loop began."""
        return traced_since(self._traced_before, self.lab.traced())

    def flush(self) -> None:
        """Write what came in since the last flush, and the record. Errors: TargetError."""
        self._wait()
        self._take()
        self._write()

    def flush_behind(self) -> None:
        """`flush`, but a thread of its own waits for the disk. One write at a time: where the disk is slower than the
        loop, what came in meanwhile goes with the next. What goes wrong is a note, and goes with the next as well.
        """
        if self._writing is not None and not self._writing.done():
            return
        self._wait()
        self._take()
        self._writing = self._disk.submit(self._write)

    def note(self, what: str, error: BaseException) -> None:
        """Say once what went wrong: what fails once may fail every half minute, each time with another file's name."""
        failure = f"{what}: {type(error).__name__}: "
        if not any(note.startswith(failure) for note in self.notes):
            self.notes.append(f"{failure}{error}")

    def _wait(self) -> None:
        """Let the write behind the loop come to its end."""
        writing, self._writing = self._writing, None
        error = None if writing is None else writing.exception()
        if error is not None:
            self.note("samples could not be stored", error)

    def _take(self) -> None:
        """Turn the steps since the last flush into rows."""
        begun = self.lab.clock.now_ns()
        if self._fresh:
            fresh = tables_of(self._fresh, self._cell())
            held = {key: [*self._tables.get(key, ()), table] for key, table in fresh.items()}
            # Made first and put in place at once: Ctrl-C in between must neither lose a step nor store it twice.
            self._tables, self._in_part, self._fresh = self._tables | held, self._in_part + len(self._fresh), []
            self._keys += [key for key in self._tables if key not in self._keys]
        self._stored_ns += self.lab.clock.now_ns() - begun

    def _write(self) -> None:
        """Bring the files up to date. Its CPU time is a cost to the loop, which shares an interpreter with it."""
        begun = time.thread_time_ns()
        for key, parts in self._tables.items():
            self.writer.put_part(key, self._part, parts)
        if self._in_part >= PART_STEPS:
            self._tables = {}
            self._part, self._in_part = self._part + 1, 0
        if len(self._during) < _MOST_SNAPSHOTS:
            self._during.append(self.lab.snapshot(False))
        self._put()
        self._stored_ns += time.thread_time_ns() - begun

    def close(self, *, complete: bool) -> None:
        """The last flush, with the conditions after and the end times. Errors: TargetError."""
        try:
            self._wait()
            # What follows comes after the loop: no step pays for it. What came before is a mean over all steps: a first
            # one that compiled for a minute was stored alone.
            ns, steps = self._stored_ns, self.steps
            stored = (OwnCost(name=STORE_COST, ns=ns / steps, n=steps),) if ns else ()
            self.flush()
        finally:
            self._disk.shutdown()
        pair = clock_pair(self.lab.clock)
        self.record = replace(
            self.record,
            overhead=(*self.costs, *stored),
            complete=complete,
            ended_unix_ns=pair.unix_ns,
            ended_monotonic_ns=pair.monotonic_ns,
            conditions=replace(self.record.conditions, after=self.lab.snapshot(False)),
        )
        self._put()

    def _put(self) -> None:
        conditions = replace(self.record.conditions, during=tuple(self._during))
        cells = tuple(CellRecord(key=key, status="ok", observed=self._observed(key)) for key in self._keys)
        self.record = replace(self.record, conditions=conditions, cells=cells, notes=tuple(self.notes))
        self.writer.put_record(scrub(self.record, self.lab.secrets()) if self.spec.anonymous else self.record)

    def _cell(self) -> CellKey:
        """The cell of the step. Its path is the one named, else the one that the gate took most until now."""
        if self._whole is None:
            spec = self.spec
            taken = {path: count.fwd for path, count in since(self.before, self.lab.counters()).items() if count.fwd}
            taken = taken or self.traced()  # compiled regions count nothing but their tracing
            path = spec.path or (max(taken, key=taken.__getitem__) if taken else OWN_PATH)
            self._whole = CellKey("step", path, spec.context, "eager", WHOLE, spec.shape, spec.dtype)
        return self._whole

    def _observed(self, key: CellKey) -> Observed:
        on_gpu = self.lab.device.kind == "cuda"
        calls, traced = since(self.before, self.lab.counters()), self.traced()
        strays = {path: n for path, n in traced.items() if path != key.path}
        gate = None
        if traced or any(count.fwd or count.bwd for count in calls.values()):
            gate = GateObservation(
                calls=self.steps,
                chosen=max(strays, key=strays.__getitem__) if strays else key.path,
                forward={path: count.fwd for path, count in calls.items() if count.fwd},
                backward={path: count.bwd for path, count in calls.items() if count.bwd},
                traced=bool(traced),
            )
        return Observed(
            device="cuda" if on_gpu else "cpu",
            borders="loop",
            trains=self.spec.trains,
            cache="loop",
            tokens=self._tokens if key.phase == WHOLE else None,
            clock_resolution_ns=self.lab.clock_resolution_ns,
            l2_bytes=self.lab.device.traits.l2_bytes,
            signatures=tuple(s for s in SIGNATURES if s.path in {"fused", key.path}) if key.phase == WHOLE else (),
            gate=gate,
            profiled=tuple(self._profiled),
            missing=self._missing(on_gpu),
        )

    def _missing(self, on_gpu: bool) -> dict[str, str]:
        told: dict[str, str] = {
            "peak_bytes": "the loop's own peak counter is not reset",
            "host_ns": "a running loop is not synchronised: its host borders are its wall",
        }
        if not on_gpu:
            return told | {"gpu_busy_ns": NO_MARKS}
        if self.windows_missing is not None and not self._profiled:
            told |= dict.fromkeys(("gpu_busy_ns", "launches"), self.windows_missing)
        return told


def shape_axes(shape: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """A shape as a cell holds it, in the order given. Errors: UsageError for a size that is no whole number."""
    try:
        return tuple((str(axis), index(size)) for axis, size in shape.items())
    except TypeError as error:  # rounded, it would name another shape
        raise UsageError(f"shape={dict(shape)}: sizes are whole numbers, for example shape={{'B': 8}}") from error


def window_steps(steps: Sequence[StepSpans]) -> str:
    """`steps 30 to 31`, for a note."""
    return f"steps {steps[0].number} to {steps[-1].number}" if steps else "no steps"


def folder_of(base: Path, rank: int | None) -> Path:
    """Where a rank writes: the run itself, or `rank00003` in it."""
    return base if rank is None else base / f"rank{rank:05d}"
