"""A step as a CUDA Graph, whole or in part, checked against eager steps from the same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kdaprof.instruments.capturefault import CaptureFailure
from kdaprof.instruments.graphs import Captured, capture
from kdaprof.probe.check import compare
from kdaprof.runs.record import Capture, Check
from kdaprof.workloads.step.case import Outputs, Phase
from kdaprof.workloads.step.spec import StepSpec
from kdaprof.workloads.step.training import StepCase
from kdaprof.workloads.step.watched import OpWatch

REPLAYS = 4
"""Steps that are compared, with the tokens changed in place between them."""
REPLAY_TOLERANCE = 1e-3
"""Relative L2 of losses, representations and of what k steps changed in the weights. AdamW divides by the gradient's
own size, so that rounding of the smallest gradients comes back as a part of their update."""


class GraphedStep:
    """A captured step: `prepare(i)` copies batch i into the static tokens, `run()` is one step."""

    def __init__(self, static: StepCase, run: Callable[[], None], outputs: Callable[[], Outputs]) -> None:
        self.static, self.run, self.outputs = static, run, outputs
        # Nobody watches the calls of a captured step: torch.compile would compile it anew for each one who does.
        self.watch = OpWatch()
        self.phases: tuple[Phase, ...] = (Phase("step", run),)
        self.steps_done = 0

    def prepare(self, index: int) -> None:
        """Bring batch `index` in; its cost is a figure of its own."""
        self.static.tokens.copy_(self.static.batches[index % len(self.static.batches)])


@dataclass(frozen=True, slots=True)
class Made:
    """What an attempt gave: the case, or None, and the record of it."""

    case: GraphedStep | None
    capture: Capture


def capture_step(spec: StepSpec, mode: str, private_pools: Callable[[], int]) -> Made:
    """The step in `mode`, and its comparison with eager.

    `graph`: forward, backward, optimiser and average as one graph. `graphed-callables`: the student's forward and
    backward by `torch.cuda.make_graphed_callables`, the rest eager. `reduce-overhead`: student and teacher through
    `torch.compile(mode="reduce-overhead")`. `private_pools()` reads the bytes of all graphs' pools. All that torch
    holds would not do: `make_graphed_callables` empties the cache first, so that it may hold less afterwards.
    """
    before = private_pools()
    pool: int | None
    static = StepCase(spec)
    if mode == "graph":
        made = capture(lambda: _whole(static))
        if isinstance(made, CaptureFailure):
            return Made(None, _failed(made))
        case, pool = _replaying(static, made), made.pool_bytes
    else:
        _make_parts(static, mode)
        case = GraphedStep(static, _stepping(static, mode), static.outputs)
        case.prepare(0)
        case.run()
        torch.cuda.synchronize()
        grown = private_pools() - before
        pool = grown if grown > 0 else None  # something was captured: no growth means that it was not seen
    check, stale = check_replays(case, StepCase(spec))
    return Made(case, Capture(captured=True, pool_bytes=pool, check=check, stale_check_failed=stale))


def _whole(static: StepCase) -> Outputs:
    static.run()
    return static.outputs()


def _replaying(static: StepCase, made: Captured[Outputs]) -> GraphedStep:
    return GraphedStep(static, made.replay, lambda: made.outputs)


def _make_parts(static: StepCase, mode: str) -> None:
    if mode == "graphed-callables":
        graphed: Callable[[Tensor], Tensor] = torch.cuda.make_graphed_callables(  # type: ignore[assignment]
            static.model, (static.tokens.clone(),)
        )
        static.student_forward = graphed
        return
    static.student_forward = torch.compile(static.model, mode="reduce-overhead")
    static.teacher_forward = torch.compile(static.teacher, mode="reduce-overhead")


def _stepping(static: StepCase, mode: str) -> Callable[[], None]:
    if mode != "reduce-overhead":
        return static.run

    def run() -> None:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        static.run()

    return run


def check_replays(case: GraphedStep, twin: StepCase) -> tuple[Check, bool]:
    """`REPLAYS` steps beside as many eager ones from the same state: outputs of each, then what the weights became.

    The comparison must be able to fail: the captured step's outputs are also held against the eager ones of another
    batch, and the second value says whether that comparison failed, as it must.
    """
    twin.prepare(0)
    twin.run()  # the optimiser's state comes into being with its first step
    torch.cuda.synchronize()
    _copy_state(case.static, twin)
    start = [weight.clone() for weight in twin.weights()]
    got: Outputs = {}
    want: Outputs = {}
    for step in range(REPLAYS):
        for one, outputs, kept in ((case, case.outputs, got), (twin, twin.outputs, want)):
            one.prepare(step)
            one.run()
            torch.cuda.synchronize()
            kept |= {f"{name}{step}": value.clone() for name, value in outputs().items()}
    got["weights"] = _moved(case.static.weights(), start)
    want["weights"] = _moved(twin.weights(), start)
    check = compare(got, want, against=f"{REPLAYS} eager steps", tolerance=REPLAY_TOLERANCE)
    stale = compare({"h": got["h1"]}, {"h": want["h0"]}, against="another batch", tolerance=REPLAY_TOLERANCE)
    return check, not stale.passed


@torch.no_grad()
def _copy_state(source: StepCase, target: StepCase) -> None:
    for mine, theirs in zip(target.weights(), source.weights(), strict=True):
        mine.copy_(theirs)
    pairs = zip(target.model.parameters(), source.model.parameters(), strict=True)
    for mine, theirs in pairs:
        known = source.optimizer.state[theirs]
        for name, value in target.optimizer.state[mine].items():
            value.copy_(known[name])


def _moved(weights: Sequence[Tensor], start: Sequence[Tensor]) -> Tensor:
    return torch.cat([(now - then).flatten() for now, then in zip(weights, start, strict=True)])


def _failed(made: CaptureFailure) -> Capture:
    where = f"{made.file}:{made.line}" if made.file else None
    return Capture(captured=False, operation=made.operation, where=where, error=made.error_text, hint=made.hint)
