"""What a process needs to rebuild a training step: the same spec gives the same weights and batches anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from kdaprof.runs.cells import CellKey

PHASES = ("fwd", "teacher", "retr", "bwd", "opt", "ema")
"""The parts of a step, in the order in which they run; together they are the step."""

OP_LINES = ("fwd.kda", "teacher.kda", "bwd.kda")
"""KDA's own part of a phase: the calls inside `fwd` and `teacher`, and their backward inside `bwd`."""

COPY_PATH = "copy"
"""The path of an ablated op: its output is a copy of v, so that everything but the op stays."""

VIEWS_OF_THE_OP = 1
"""Of the op's inputs in this model: v is a view into the joined projection of q, k and v."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Width of the model, its heads and the size of each; K = V, and heads × head_dim = width."""

    width: int = 768
    heads: int = 12
    head_dim: int = 64
    vocabulary: int = 8192


HOST_MODEL = ModelSize(width=32, heads=1, head_dim=32, vocabulary=256)
"""Without a GPU: small enough for Triton's interpreter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """One path's step in one context. `key` is the cell of the whole step, phase `step`, mode `eager`."""

    key: CellKey
    device: str
    seed: int
    size: ModelSize = ModelSize()
    batches: int = 2
    """Token batches that the steps rotate through."""
    chunk: int = 16
    target: str | None = None
    """`package.module:make_step` of a user's own step; None is the built-in one."""

    def sibling(self, **changes: str) -> CellKey:
        """Another cell of the same step: a phase, an op line, another mode."""
        return self.key.sibling(**changes)
