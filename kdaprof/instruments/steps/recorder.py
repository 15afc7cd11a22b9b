"""Borders of steps and phases, taken in the running loop: a clock reading, a mark in the device's queue, an NVTX range.

The order at a border keeps our own cost out of the phases: a phase begins with its clock reading and ends with it, the
mark stands before the one and behind the other. Neighbours share a mark when no work can have been issued between
them. Nothing here waits for the device; marks are read some steps later, when it has passed them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from kdaprof.errors import UsageError
from kdaprof.instruments.allocator import Allocator, AllocatorCounters, delta
from kdaprof.instruments.clock import Clock
from kdaprof.instruments.nvtx import Ranges
from kdaprof.instruments.steps.borders import Borders, Mark, NoBorders
from kdaprof.instruments.steps.spans import OpenPhase, OpenStep, StepSpans, settle
from kdaprof.timeline.loop_ranges import OTHER, WHOLE

UNPROFILED = "unprofiled"
SHARED_NS = 5_000
"""A border that follows another this closely shares its mark: no operator can be issued in so short a time."""
ALLOCATOR_EVERY = 16
"""Steps between two whose allocations are counted: a reading takes 19 µs on an H200."""
HOLD_STEPS, HOLD_NS = 16, 100_000_000
"""Short steps are read together, at the latest when so many or so old: in the middle of other work the first reading
takes 50 µs, those behind it 4, since by then the interpreter has this code and its data at hand."""


class Windows(Protocol):
    """What watches some steps more closely than the recorder does."""

    def before(self, number: int) -> str:
        """Called before step `number`; returns how it will be watched: `unprofiled` or the kind of a recording."""
        ...

    def after(self, number: int) -> None:
        """Called after a step that is watched."""
        ...

    def abort(self) -> None:
        """The step did not come to its end: put everything back."""
        ...


class StepRecorder:
    """Takes the borders; finished steps are handed to `on_step`, in order, once the device has passed their marks."""

    def __init__(
        self,
        *,
        clock: Clock,
        borders: Borders,
        ranges: Ranges,
        allocator: Allocator,
        on_step: Callable[[StepSpans], None],
        windows: Windows | None = None,
        allocator_every: int = ALLOCATOR_EVERY,
        hold_ns: int = HOLD_NS,
    ) -> None:
        self._now = clock.now_ns
        self._borders = borders
        self._new_mark = None if borders.missing is not None else borders.mark
        # Without a tool that collects them, ranges are calls for nothing, twice a phase.
        self._ranges = None if ranges.missing is not None else ranges
        self._allocator = None if allocator.missing is not None else allocator
        self._allocator_every = max(1, allocator_every)
        self._hold_ns = hold_ns
        self._before: AllocatorCounters | None = None
        self._on_step = on_step
        self._windows = windows
        self._step: OpenStep | None = None
        self._open: list[OpenPhase] = []
        self._last_mark: Mark | None = None
        self._last_ns = 0
        self._failed_in: str | None = None
        self._waiting: deque[OpenStep] = deque()
        self._phases: dict[str, _Phase] = {}
        self.next_step = 0

    @property
    def where(self) -> str | None:
        """`step 57, phase bwd`: what is open, or what an exception ended last; None when neither."""
        if self._step is None or self._failed_in is not None:
            return self._failed_in
        phase = f", phase {self._open[-1].name}" if self._open else ""
        return f"step {self._step.number}{phase}"

    @property
    def in_step(self) -> bool:
        """Whether a step is open."""
        return self._step is not None

    def step(self, tokens: int | None = None) -> _Step:
        """A step around a block; one that ends by an exception is not kept."""
        return _Step(self, tokens)

    def phase(self, name: str) -> _Phase:
        """A phase around a block inside a step. Entered again in the same step, its times are summed."""
        found = self._phases.get(name)
        if found is None:
            found = self._phases[name] = _Phase(self, _checked(name))
        return found

    def begin_step(self, tokens: int | None = None) -> None:
        """Open the next step. Errors: UsageError when one is open."""
        if self._step is not None:
            raise UsageError(f"step {self._step.number} is still open: steps do not nest; end it first")
        number = self.next_step
        self.next_step = number + 1
        kind = UNPROFILED if self._windows is None else self._windows.before(number)
        if self._allocator is not None and number % self._allocator_every == 0:
            self._before = self._allocator.read()
        token = 0 if self._ranges is None else self._ranges.start(WHOLE, "cell", number)
        mark = None if self._new_mark is None else self._new_mark()
        step = OpenStep(number, 0, mark, token, kind, tokens)
        if mark is not None:
            step.marks.append(mark)
        self._last_mark, self._failed_in = mark, None
        self._step = step
        self._last_ns = step.start_ns = self._now()

    def end_step(self, tokens: int | None = None) -> None:
        """Close the step, with whatever phase is still open in it; `tokens`, where only now they are known.

        Errors: UsageError when no step is open.
        """
        now = self._now()
        step = self._step
        if step is None:
            raise UsageError("no step is open: begin one first, `with prof.step():`")
        while self._open:
            self._end_phase(now)
        step.end_ns = now
        if tokens is not None:
            step.tokens = tokens
        if self._new_mark is not None:
            step.last = self._last_mark if now - self._last_ns <= SHARED_NS else self._mark(step)
        if self._ranges is not None:
            self._ranges.end(step.token)
        self._step = None
        if self._before is not None and self._allocator is not None:
            after = self._allocator.read()
            step.memory = delta(self._before, after)
            step.reserved_bytes = None if after is None else after.reserved_bytes
            self._before = None
        self._waiting.append(step)
        if step.kind != UNPROFILED and self._windows is not None:
            self._windows.after(step.number)
        waiting = self._waiting
        if step.kind != UNPROFILED or len(waiting) >= HOLD_STEPS or now - waiting[0].end_ns >= self._hold_ns:
            self.read()

    def begin_phase(self, name: str) -> None:
        """Open a phase. Errors: UsageError outside a step, or for a name that no cell can have."""
        self._begin_phase(_checked(name))

    def end_phase(self) -> None:
        """Close the innermost phase. Errors: UsageError when none is open."""
        now = self._now()
        if not self._open:
            raise UsageError("no phase is open: begin one first, `with prof.phase(name):`")
        self._end_phase(now)

    def abandon(self) -> None:
        """Drop the open step, if there is one: it did not come to its end, so it is not a step."""
        step = self._step
        if step is None:
            return
        self._failed_in = self.where
        if self._ranges is not None:
            for phase in reversed(self._open):
                self._ranges.end(phase.token)
            self._ranges.end(step.token)
        self._open.clear()
        for mark in step.marks:
            self._borders.free(mark)
        self._step = self._before = None
        if step.kind != UNPROFILED and self._windows is not None:
            self._windows.abort()

    def drain(self) -> None:
        """Wait for the device and hand out every step that is still waiting: for the end of the loop."""
        if self._waiting:
            self._borders.wait()
        self.read()

    def let_go(self) -> None:
        """Touch no instrument any more and hand no step out. Steps and phases can still be opened and closed."""
        self._borders, self._new_mark = NoBorders("the recorder let go"), None
        self._ranges = self._allocator = self._windows = self._before = None
        self._on_step = _dropped
        if self._step is not None:
            self._step.marks.clear()

    def _begin_phase(self, name: str) -> None:
        step = self._step
        if step is None:
            raise UsageError(f"phase {name!r} outside a step: put it inside `with prof.step():`")
        nested = bool(self._open)
        if nested:
            name = f"{self._open[-1].name}.{name}"
        token = 0 if self._ranges is None else self._ranges.start(name, "phase")
        mark = None
        if self._new_mark is not None:
            mark = self._last_mark if self._now() - self._last_ns <= SHARED_NS else self._mark(step)
        phase = OpenPhase(name, 0, mark, nested, token)
        self._open.append(phase)
        step.phases.append(phase)
        self._last_ns = phase.start_ns = self._now()

    def _end_phase(self, now: int) -> None:
        phase = self._open.pop()
        phase.end_ns = now
        if self._new_mark is not None and self._step is not None:
            # Never shared with the phase's own begin: a graph's launch takes the host little and the device long.
            phase.last = self._mark(self._step)
        if self._ranges is not None:
            self._ranges.end(phase.token)
        self._last_ns = self._now()

    def _mark(self, step: OpenStep) -> Mark | None:
        assert self._new_mark is not None  # asked only where the device has marks
        mark = self._last_mark = self._new_mark()
        if mark is not None:
            step.marks.append(mark)
        return mark

    def read(self) -> None:
        """Hand out the finished steps whose marks the device has passed."""
        waiting, borders = self._waiting, self._borders
        while waiting:
            oldest = waiting[0]
            if oldest.marks and not borders.reached(oldest.marks[-1]):
                return
            self._on_step(settle(waiting.popleft(), borders))


class _Step:
    """`with prof.step():`."""

    __slots__ = ("_recorder", "_tokens")

    def __init__(self, recorder: StepRecorder, tokens: int | None) -> None:
        self._recorder = recorder
        self._tokens = tokens

    def __enter__(self) -> None:
        self._recorder.begin_step(self._tokens)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._recorder.abandon()
        elif self._recorder.in_step:  # else it was dropped inside its block, or the profiler closed
            self._recorder.end_step()


class _Phase:
    """`with prof.phase(name):`, one object a name, entered again and again."""

    __slots__ = ("_name", "_recorder")

    def __init__(self, recorder: StepRecorder, name: str) -> None:
        self._recorder = recorder
        self._name = name

    def __enter__(self) -> None:
        self._recorder._begin_phase(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recorder = self._recorder
        now = recorder._now()
        if kind is not None and recorder._failed_in is None:
            recorder._failed_in = recorder.where
        if recorder._open:  # the loop may catch the exception and go on: the phase is over either way
            recorder._end_phase(now)


def _checked(name: str) -> str:
    if name in (WHOLE, OTHER) or not name.replace("_", "").replace("-", "").isalnum():
        raise UsageError(f"phase {name!r}: use letters, digits, - and _, and neither {WHOLE!r} nor {OTHER!r}")
    return name


def _dropped(spans: StepSpans) -> None:
    """Nobody waits for this step."""
