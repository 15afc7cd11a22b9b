"""The contract of an A/B experiment, as its TOML file states it: what is compared, on what, and what must come out.

Typed and closed: a key that is not known is an error, so that a gate misspelt is not a gate left out.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kdaprof.analysis.interleaved import SAME_BAND

CONTRACT_SCHEMA = "kdaprof.ab-contract/1"

Kind = Literal["paths", "targets", "revisions"]
Role = Literal["representative", "fallback", "control"]
ROLES: tuple[Role, ...] = ("representative", "fallback", "control")


class Closed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the contract that takes no key but its own."""


class Measure(Closed, frozen=True, kw_only=True):
    """How much is measured: `samples` a side and shape in each of `rounds` interleaved rounds."""

    rounds: int = 8
    samples: int = 20
    warmup: int = 10
    device: str = "auto"
    seed: int = 0
    timeout_s: float = 600.0
    """Bound on one process: one round of a revision's command, or one target with all its rounds."""


class Op(Closed, frozen=True, kw_only=True):
    """The call of kind `paths`."""

    phase: str = "fwdbwd"
    dtype: str = "float32"
    chunk: int = 16


class Repository(Closed, frozen=True, kw_only=True):
    """The repository of kind `revisions`, relative to the contract, and the command that measures in a worktree."""

    command: tuple[str, ...]
    path: str = "."


class Frozen(Closed, frozen=True, kw_only=True):
    """What must hold before anything is timed: SHA-256 of files, and a command that ends with 0."""

    command: tuple[str, ...] = ()
    files: dict[str, str] = {}
    timeout_s: float = 1800.0


class Attempts(Closed, frozen=True, kw_only=True):
    """The stop rule: after `most` attempts without a go, no further one is measured."""

    most: int


class Shape(Closed, frozen=True, kw_only=True):
    """One row. `size` is B,T,H,K,V for kind `paths`; `env` is set in the processes of kind `targets`."""

    name: str
    role: Role = "representative"
    size: str | None = None
    env: dict[str, str] = {}


class _Chosen(Closed, frozen=True, kw_only=True):
    """A gate over shapes: those named, and those of the roles named; all of them when neither is given."""

    name: str | None = None
    shapes: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()


class StageShare(Closed, frozen=True, kw_only=True, tag_field="kind", tag="stage-share"):
    """Before any work: the stages to be replaced hold at least `min` of the whole.

    Either `share` is declared (with its `source`), or it is taken from the stages of a cell in a stored run whose
    names match one of `stages`. With `bound`, Amdahl's limit 1 / (1 − share · removable) must reach it too.
    """

    min: float
    name: str | None = None
    share: float | None = None
    source: str | None = None
    run: str | None = None
    cell: str | None = None
    stages: tuple[str, ...] = ()
    bound: float | None = None
    removable: float = 1.0


class Speedup(_Chosen, frozen=True, kw_only=True, tag_field="kind", tag="speedup"):
    """Every chosen shape reaches the speedup `min`."""

    min: float


class Geomean(_Chosen, frozen=True, kw_only=True, tag_field="kind", tag="geomean"):
    """The geometric mean of the chosen shapes' speedups, equally weighted, reaches `min`."""

    min: float


class AnySpeedup(_Chosen, frozen=True, kw_only=True, tag_field="kind", tag="any-speedup"):
    """At least one of the chosen shapes reaches `min`; intervals are widened for the number of chances."""

    min: float


class NonRegression(_Chosen, frozen=True, kw_only=True, tag_field="kind", tag="non-regression"):
    """No chosen shape takes more than 1 + `band` times the base's time."""

    band: float = SAME_BAND


class PeakChange(_Chosen, frozen=True, kw_only=True, tag_field="kind", tag="peak-change"):
    """The change of peak memory, candidate − base, lies within the bounds given, in bytes or as fraction of base."""

    at_most_bytes: int | None = None
    at_least_bytes: int | None = None
    at_most: float | None = None
    at_least: float | None = None


Gate = StageShare | Speedup | Geomean | AnySpeedup | NonRegression | PeakChange


class Contract(Closed, frozen=True, kw_only=True):
    """One experiment."""

    schema: Literal["kdaprof.ab-contract/1"]
    name: str
    kind: Kind
    shapes: tuple[Shape, ...]
    gates: tuple[Gate, ...]
    base: str | None = None
    cand: str | None = None
    measure: Measure = Measure()
    op: Op = Op()
    repository: Repository | None = None
    frozen: Frozen = Frozen()
    attempts: Attempts | None = None

    def chosen(self, gate: Gate) -> tuple[Shape, ...]:
        """The shapes that a gate looks at, in the contract's order."""
        if isinstance(gate, StageShare):
            return ()
        if not gate.shapes and not gate.roles:
            return self.shapes
        return tuple(shape for shape in self.shapes if shape.name in gate.shapes or shape.role in gate.roles)
