"""A cell's call as a CUDA Graph: captured once, its inputs copied in, replayed, compared with eager."""

from __future__ import annotations

import torch

from kdaprof.instruments.capturefault import CaptureFailure
from kdaprof.instruments.device import Device
from kdaprof.instruments.graphs import Captured, capture, capture_pair
from kdaprof.probe.check import REPLAY_TOLERANCE, compare
from kdaprof.runs.record import Capture
from kdaprof.workloads.inputs import Inputs
from kdaprof.workloads.op import CaseSpec, OpCase, Outputs, trains


class GraphCase:
    """`prepare(i)` copies input set i into the static buffers and evicts the cache; `run()` is one replay."""

    def __init__(
        self, eager: OpCase, captured: Captured[Outputs], forward: Captured[Outputs] | None, static: OpCase, flush: int
    ) -> None:
        self._eager = eager
        self._captured = captured
        self._forward = forward
        self._static = static
        self._scratch = torch.empty(flush, dtype=torch.uint8, device="cuda") if flush else None
        self._pairs: tuple[tuple[torch.Tensor, torch.Tensor], ...] = ()
        self.run = captured.replay
        self.choose(0)

    def choose(self, index: int) -> None:
        """Name the input set that the next `copy` brings in."""
        chosen = self._eager.sets[index % len(self._eager.sets)]
        here = self._static.current
        self._pairs = tuple(zip((*here.tensors(), here.do), (*chosen.tensors(), chosen.do), strict=True))

    @torch.no_grad()
    def copy(self) -> None:
        """Copy the chosen set into the static buffers: the cost that stands beside a replay."""
        for static, fresh in self._pairs:
            static.copy_(fresh)

    def prepare(self, index: int) -> None:
        """Everything between two replays that the clock must not see."""
        self.choose(index)
        self.copy()
        if self._forward is not None:
            self._forward.replay()
        if self._scratch is not None:
            self._scratch.zero_()

    def outputs(self) -> Outputs:
        """The static outputs; the next replay overwrites them."""
        return self._static.outputs()

    def close(self) -> None:
        """Give the graph and its pool back."""
        self._captured.reset()
        if self._forward is not None:
            self._forward.reset()


def flush_bytes(spec: CaseSpec, device: Device) -> int:
    """What is overwritten between two replays so that they find L2 cold; nothing where the cache is kept warm."""
    return 2 * (device.traits.l2_bytes or 0) if spec.input_sets > 1 else 0


def capture_case(eager: OpCase, *, flush_bytes: int) -> tuple[GraphCase | None, Capture]:
    """Capture the cell and compare its replays with eager, with inputs changed in place in between.

    The comparison is only worth something if it can fail: the outputs of one input set are held against the
    eager outputs of another, and that comparison must not pass (`stale_check_failed`).
    """
    # Never run before the capture: an AccumulateGrad node made on the default stream and kept alive would make
    # that stream wait for the capturing one, which breaks the capture of a backward pass.
    static = OpCase(_one_set(eager.spec), (_copy_of(eager.sets[0], trains(eager.spec.key.phase)),))
    made = _capture(static)
    if isinstance(made, CaptureFailure):
        where = f"{made.file}:{made.line}" if made.file else None
        return None, Capture(
            captured=False, operation=made.operation, where=where, error=made.error_text, hint=made.hint
        )
    replayed_part, forward = made
    case = GraphCase(eager, replayed_part, forward, static, flush_bytes)
    expected = [_eager_outputs(eager, index) for index in range(min(2, len(eager.sets)))]
    replayed = [_replayed(case, index) for index in range(len(expected))]
    checks = [
        compare(got, want, against="eager", tolerance=REPLAY_TOLERANCE)
        for got, want in zip(replayed, expected, strict=True)
    ]
    worst = next((check for check in checks if not check.passed), checks[-1])
    stale = None
    if len(expected) == 2:
        stale = not compare(replayed[0], expected[1], against="eager, other inputs", tolerance=REPLAY_TOLERANCE).passed
    pool = replayed_part.pool_bytes + (forward.pool_bytes if forward is not None else 0)
    return case, Capture(captured=True, pool_bytes=pool, check=worst, stale_check_failed=stale)


def _capture(static: OpCase) -> tuple[Captured[Outputs], Captured[Outputs] | None] | CaptureFailure:
    """The call as a graph; for phase bwd the backward alone, with the forward that feeds it as a graph of its own."""

    def run() -> Outputs:
        static.run()
        return static.outputs()

    def forward() -> Outputs:
        static.forward()
        return static.outputs()

    if static.spec.key.phase != "bwd":
        made = capture(run)
        return made if isinstance(made, CaptureFailure) else (made, None)
    pair = capture_pair(forward, lambda _: run())
    return pair if isinstance(pair, CaptureFailure) else (pair.backward, pair.forward)


def _one_set(spec: CaseSpec) -> CaseSpec:
    return CaseSpec(key=spec.key, device=spec.device, seed=spec.seed, input_sets=1)


def _copy_of(inputs: Inputs, grad: bool) -> Inputs:
    fresh = tuple(t.detach().clone().requires_grad_(grad) for t in inputs.tensors())
    return inputs.like(fresh, inputs.do.clone())


def _eager_outputs(eager: OpCase, index: int) -> Outputs:
    eager.prepare(index)
    eager.run()
    made = {name: value.clone() for name, value in eager.outputs().items()}
    eager.prepare(index)
    return made


def _replayed(case: GraphCase, index: int) -> Outputs:
    case.prepare(index)
    case.run()
    torch.cuda.synchronize()
    return {name: value.clone() for name, value in case.outputs().items()}
