"""What a run stores as it was seen: cells with their observations, conditions and ceilings. Nothing here is derived."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kdaprof.runs.cells import CellKey
from kdaprof.runs.compiles import SlowStep
from kdaprof.runs.conditions import Conditions
from kdaprof.runs.environment import Environment
from kdaprof.runs.facts import Provenance, Unit
from kdaprof.runs.memory import StepMemory

Status = Literal["ok", "failed", "unavailable", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellError:
    """Why a cell has no result: the exception's type and one line of text."""

    type: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorError:
    """One output or gradient against the reference: relative L2 ‖x − ref‖ / ‖ref‖ and largest absolute error."""

    name: str
    l2: float | None
    max_abs: float | None
    finite: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A comparison with `against`, before timing; `passed` when every tensor is finite and in tolerance."""

    against: str
    tolerance_l2: float
    tensors: tuple[TensorError, ...]
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A path that the gate did not take, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateObservation:
    """What the dispatcher recorded over `calls` calls of the cell: path chosen, refusals, forward and backward apart.

    `traced` means that the decision was taken when torch.compile traced the call, not on each call.
    """

    calls: int
    chosen: str | None
    forward: dict[str, int]
    backward: dict[str, int]
    refused: tuple[Refusal, ...] = ()
    traced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredCounts:
    """Launches and allocations of one call, declared before the run as inclusive ranges; None when not declared."""

    launches: tuple[int, int] | None
    allocs: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSignature:
    """Kernel names that speak for a path: regular expressions, searched in the names seen on the device."""

    path: str
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """A CUDA Graph capture: pool memory, or the operation and line that broke it."""

    captured: bool
    pool_bytes: int | None = None
    nodes: int | None = None
    check: Check | None = None
    stale_check_failed: bool | None = None
    operation: str | None = None
    where: str | None = None
    error: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Operations and bytes of one call of this cell, each byte basis apart."""

    flops: int
    bytes_compulsory: int
    bytes_path: int | None
    rate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """One profiled recording of the cell in its worker: file of its timeline, host-side walls of its repeats."""

    kind: Literal["profiled-cuda", "profiled-full"]
    timeline: str
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything seen of a cell that is not a sample or a timeline event."""

    device: Literal["cuda", "cpu"]
    borders: Literal["call", "loop", "phase"] = "call"
    """`call`: synchronised before and after each execution. `loop`: borders of a running loop, never synchronised.
    `phase`: a part of a synchronised step, synchronised at its own borders (an op's calls inside it are not)."""
    interpreted: bool = False
    trains: bool = False
    cache: str = "rotate"
    input_sets: int = 1
    tokens: int | None = None
    clock_resolution_ns: int = 1
    l2_bytes: int | None = None
    declared: DeclaredCounts | None = None
    signatures: tuple[PathSignature, ...] = ()
    gate: GateObservation | None = None
    check: Check | None = None
    capture: Capture | None = None
    work: Work | None = None
    profiled: tuple[Profiled, ...] = ()
    memory: StepMemory | None = None
    slow_steps: tuple[SlowStep, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRecord:
    """A cell as stored in run.json."""

    key: CellKey
    status: Status
    error: CellError | None = None
    observed: Observed | None = None

    @property
    def id(self) -> str:
        """The cell id."""
        return self.key.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A rate of this card, measured in this run or declared by someone."""

    name: str
    value: float
    unit: Unit
    provenance: Provenance
    n: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCost:
    """What one use of an instrument costs on this machine."""

    name: str
    ns: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """run.json: one run, as measured."""

    run: str
    tool: str
    command: tuple[str, ...]
    started_unix_ns: int
    started_monotonic_ns: int
    complete: bool
    environment: Environment
    conditions: Conditions
    ceilings: tuple[Ceiling, ...] = ()
    overhead: tuple[OwnCost, ...] = ()
    cells: tuple[CellRecord, ...] = ()
    ended_unix_ns: int | None = None
    ended_monotonic_ns: int | None = None
    notes: tuple[str, ...] = ()
