"""Right before fast: a step's loss, representation and gradients against the same step on the float64 recurrence."""

from __future__ import annotations

from dataclasses import replace

import torch

from kdaprof.probe.check import compare
from kdaprof.runs.cells import CellKey
from kdaprof.runs.record import Check
from kdaprof.workloads.step.spec import StepSpec
from kdaprof.workloads.step.training import StepCase

CHECK_TOKENS = 128
CHECK_BATCH = 2
TOLERANCE = {"float64": 1e-10, "float32": 1e-4, "bfloat16": 0.08, "float16": 0.08}
"""Relative L2 of a whole step. Looser than the op's: errors go through every iteration and back."""


def check_step(spec: StepSpec) -> Check:
    """One forward, loss and backward on `spec`'s path and context, at a size that the float64 recurrence can hold.

    Same weights and tokens on both sides; at most 2 sequences of 128 tokens, all iterations.
    """
    made = _results(replace(spec, key=_small(spec.key)))
    exact = _small(spec.key).sibling(path="reference", context="plain", dtype="float64")
    expected = _results(replace(spec, key=exact))
    half = "bfloat16" if spec.key.context == "autocast" else spec.key.dtype
    return compare(made, expected, against="float64 recurrence, same step", tolerance=TOLERANCE[half])


def _small(key: CellKey) -> CellKey:
    most = {"B": CHECK_BATCH, "T": CHECK_TOKENS}
    return replace(key, shape=tuple((axis, min(size, most.get(axis, size))) for axis, size in key.shape))


def _results(spec: StepSpec) -> dict[str, torch.Tensor]:
    case = StepCase(replace(spec, batches=1))
    case.prepare(0)
    for phase in case.phases:
        if phase.name in ("fwd", "teacher", "retr", "bwd"):
            phase.run()
    gradients = [weight.grad for weight in case.model.parameters() if weight.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    return {**case.outputs(), "gradients": flat}
