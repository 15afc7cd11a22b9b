"""The profiler of a user's own training loop: always on, cheap, and never the reason why training stops."""

from __future__ import annotations

import atexit
import math
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from kdaprof.analysis.derive import derive
from kdaprof.analysis.recompute import load_raw
from kdaprof.analysis.trace.loop import idle_share
from kdaprof.errors import UsageError
from kdaprof.instruments.steps import StepRecorder
from kdaprof.instruments.steps.recorder import HOLD_NS, UNPROFILED
from kdaprof.instruments.steps.spans import StepSpans
from kdaprof.instruments.steps.window import KinetoWindows, WindowPlan, timeline_of
from kdaprof.integrations.steps.cost import own_costs
from kdaprof.integrations.steps.forks import let_go_in_children
from kdaprof.integrations.steps.lab import LoopLab, open_loop_lab
from kdaprof.integrations.steps.late import LateSteps
from kdaprof.integrations.steps.live import LiveMeter
from kdaprof.integrations.steps.run import LoopRun, LoopSpec, folder_of, shape_axes, window_steps
from kdaprof.report.loop import loop_text
from kdaprof.report.markdown import render
from kdaprof.runs.history import record_run
from kdaprof.runs.ids import new_run_id
from kdaprof.runs.place import find_store
from kdaprof.runs.ranks import RankManifest, rank_of, write_manifest
from kdaprof.runs.store import ARGUMENTS, RunWriter, open_target

FLUSH_NS = 30_000_000_000
"""A kill loses at most the steps of the last half minute."""

MOST_DERIVED = 50_000
"""Steps up to which the figures are derived when the loop ends."""


class StepProfiler:
    """Watch a training loop, step by step and phase by phase.

        with StepProfiler("runs/mine", shape={"B": 8, "T": 512}, live=print) as prof:
            for batch in loader:
                with prof.step(tokens=batch.numel()):
                    with prof.phase("fwd"):
                        loss = model(batch)
                    with prof.phase("bwd"):
                        loss.backward()
                    with prof.phase("opt"):
                        optimizer.step()
                        optimizer.zero_grad()
        print(prof.summary())

    `out`: the run directory, new or empty; under torchrun the directory that holds one run a rank, and then it must be
    given. `shape` names what a step works on (`B`, `T`, `iters` …: sizes, whole numbers). `dtype`: torch's name of the
    dtype that matters. `path`: the op's path that you expect (`fused` …); left out, it is the one that the gate takes
    most in the first steps. `trains`: steps hold a backward pass (rule Q07 watches that they do). `live`: called with a
    line of text every `live_seconds`. `windows`: which steps are profiled; `WindowPlan(most=0)` for none. The closed
    run is recorded for `kdaprof history` in `store`, by default the project's own, as a probe is; `history=False` does
    not record it. A forked child's copy (a data loader's worker) does nothing.

    Errors: UsageError or TargetError before the loop begins. Afterwards a fault of the profiler (disk full, a profiler
    that does not start) is a note in the run and in `notes`, never an exception in the loop; misuse (a phase outside
    a step) is a UsageError.
    """

    def __init__(
        self,
        out: str | Path | None = None,
        *,
        shape: Mapping[str, int],
        dtype: str = "float32",
        path: str | None = None,
        context: str = "plain",
        trains: bool = True,
        device: str = "auto",
        live: Callable[[str], None] | None = None,
        live_seconds: float = 10.0,
        windows: WindowPlan | None = None,
        force: bool = False,
        anonymous: bool = False,
        history: bool = True,
        store: str | Path | None = None,
        lab: LoopLab | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        if not 0 <= live_seconds < math.inf:
            raise UsageError(f"live_seconds={live_seconds}: seconds between two lines, 0 for a line a step")
        rank = rank_of(os.environ if environ is None else environ)
        if out is None and rank is not None:
            raise UsageError("out is needed under torchrun: all ranks must name the same directory")
        base = Path(out) if out is not None else Path("runs") / new_run_id("step")
        self.path = folder_of(base, None if rank is None else rank.rank)
        spec = LoopSpec(
            run=base.name if rank is None else f"{base.name}-{self.path.name}",
            shape=shape_axes(shape),
            dtype=dtype,
            path=path,
            context=context,
            trains=trains,
            anonymous=anonymous,
        )
        writer = open_target(self.path, force=force, spoken=ARGUMENTS)
        if rank is not None and rank.rank == 0:
            write_manifest(base, RankManifest(world_size=rank.world_size))
        self._lab = lab or open_loop_lab(device)
        self._run = LoopRun(spec, self._lab, writer, self._lab.counters(), own_costs(self._lab))
        self._windows = KinetoWindows(
            windows or WindowPlan(), self._lab.device, self._lab.clock, make=self._lab.make_profiler
        )
        self._recorder = StepRecorder(
            clock=self._lab.clock,
            borders=self._lab.borders,
            ranges=self._lab.ranges,
            allocator=self._lab.allocator,
            on_step=self._on_step,
            windows=self._windows,
            hold_ns=min(HOLD_NS, round(live_seconds * 1e9)),
        )
        now = self._lab.clock.now_ns()
        self._meter = LiveMeter(now, self._run.before)
        self._live, self._live_ns = live, round(live_seconds * 1e9)
        self._flush_at = now + FLUSH_NS
        self._window: list[StepSpans] = []
        self._host_bound: tuple[float, int] | None = None
        self._history, self._store = history, None if store is None else Path(store)
        self._closed = False
        # begin_phase and end_phase for hooks, step and phase for blocks: the recorder's own, no frame in between.
        self.phase: Callable[[str], AbstractContextManager[None]] = self._recorder.phase
        self.step: Callable[..., AbstractContextManager[None]] = self._recorder.step
        self.begin_step, self.end_step = self._recorder.begin_step, self._recorder.end_step
        self.begin_phase, self.end_phase = self._recorder.begin_phase, self._recorder.end_phase
        atexit.register(self._at_exit)
        let_go_in_children(self)

    def __enter__(self) -> StepProfiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            where = self._recorder.where
            self.close(f"the loop was ended by {kind.__name__}{f' in {where}' if where else ''}")

    @property
    def in_step(self) -> bool:
        """Whether a step is open."""
        return self._recorder.in_step

    @property
    def notes(self) -> tuple[str, ...]:
        """What went wrong in the profiler itself, a line each."""
        return tuple(self._run.notes)

    def abandon(self) -> None:
        """Drop the open step: it did not come to its end. Nothing happens when none is open."""
        self._recorder.abandon()

    def line(self) -> str:
        """The live line now; the next one counts from here."""
        self._recorder.read()
        return self._line()

    def _line(self) -> str:
        now, counters = self._lab.clock.now_ns(), self._lab.counters()
        self._meter.traced = self._run.traced()
        text = self._meter.line(now, counters, self._host_bound)
        self._meter = LiveMeter(now, counters)
        return text

    def close(self, interrupted: str | None = None) -> None:
        """Bring the run to its end: complete, or partial with the reason. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        self._recorder.abandon()
        self._windows.abort()  # a loop may end between two steps of a window
        if interrupted is not None:
            self._run.notes.append(interrupted)
        self._guarded("the last steps could not be read", self._recorder.drain)
        self._take_no_more()
        if not self._run.steps:
            self._run.notes.append("no step came to its end: put `with prof.step():` around each step of the loop")
        self._guarded("the run could not be closed", lambda: self._run.close(complete=interrupted is None))
        self._guarded("the figures could not be derived", self._derive)

    def let_go(self) -> None:
        """Leave loop, device and run to the parent: for a forked child, whose copy may be used and does nothing."""
        self._closed = True
        atexit.unregister(self._at_exit)
        self._recorder.let_go()

    def summary(self) -> str:
        """Where the steps went, as a table of text, with the profiler's own cost. For a closed profiler."""
        if not self._closed:
            raise UsageError("the profiler is still open: close it, or leave its `with` block, before summary()")
        raw = load_raw(self.path)
        # What could not be stored, on a full disk, is in no file.
        return loop_text(replace(raw.record, notes=self.notes), derive(raw))

    def _take_no_more(self) -> None:
        """The run has all its steps: what was written stays as it is, however long the loop goes on."""
        late = LateSteps(self._run.notes.append)
        self.phase, self.step = late.phase, late.step
        self.begin_step, self.end_step = late.begin_step, late.end_step
        self.begin_phase, self.end_phase = late.begin_phase, late.end_phase

    def _on_step(self, spans: StepSpans) -> None:
        self._run.add(spans)
        self._meter.add(spans)
        if spans.kind != UNPROFILED:
            self._window.append(spans)
        if self._windows.recorded is not None and not self._recorder.in_step:
            self._guarded("a profiled window was lost", self._take_window)
        if self._windows.note is not None and self._windows.note not in self._run.notes:
            self._run.notes.append(self._windows.note)
            self._run.windows_missing = self._windows.note
        now = self._lab.clock.now_ns()
        if now >= self._flush_at:
            self._flush_at = now + FLUSH_NS
            self._guarded("samples could not be stored", self._run.flush_behind)
        if self._live is not None and now - self._meter.begun_ns >= self._live_ns:
            self._guarded("the live line could not be shown", lambda: self._say(self._line()))

    def _say(self, text: str) -> None:
        if self._live is not None:
            self._live(text)

    def _take_window(self) -> None:
        window = self._windows.recorded
        if window is None or len(self._window) < window.steps:
            return
        steps, self._window = self._window, []
        self._windows.take()
        timeline = timeline_of(window, steps)
        self._run.add_window(timeline, window.kind, window.first, len(steps))
        share = idle_share(timeline)
        if share is not None:
            self._host_bound = (share, steps[-1].number)
        elif self._lab.device.kind == "cuda":
            self._run.notes.append(f"the window of {window_steps(steps)} shows no device event")

    def _derive(self) -> None:
        if self._run.steps > MOST_DERIVED:
            # Seconds and gigabytes at the end of a long training are not the profiler's to take.
            told = f"`kdaprof report {self.path} --write` derives the figures"
            self._run.notes.append(f"{self._run.steps:,} steps: {told}")
            return
        raw = load_raw(self.path)
        results = derive(raw)
        writer = RunWriter(self.path)
        writer.put_results(results)
        writer.put_report(render(raw.record, results))
        if self._history:
            self._guarded("the run was not recorded in the history", self._record)

    def _record(self) -> None:
        record_run(find_store(self._store, Path.cwd()), self.path)

    def _guarded(self, what: str, do: Callable[[], None]) -> None:
        """Training goes on whatever the profiler runs into; the run says what it was."""
        try:
            do()
        except Exception as error:
            self._run.note(what, error)

    def _at_exit(self) -> None:
        self.close("the process ended before the profiler was closed")
