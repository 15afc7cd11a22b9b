"""The plan of a probe: which cells, in which order, with which effort. Checked before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kdaprof.errors import UnavailableError, UsageError
from kdaprof.kda.limits import fused_limit
from kdaprof.runs.cells import CONTEXTS, DTYPES, MODES, OWN_PATHS, PATHS, PHASES, CellKey, make_shape, parse_shape
from kdaprof.runs.ids import new_run_id
from kdaprof.workloads.delta.facts import DELTA

PRODUCTION_SHAPE = (10, 512, 12, 64, 64)
HOST_SHAPE = (1, 40, 2, 32, 32)
"""B, T, H, K, V without a GPU: small enough for Triton's interpreter; two whole chunks, a short one, two heads."""

_SEED_MOST = 2**32 - 1

RUNNABLE = OWN_PATHS
"""Paths of the op itself, which a training step can take; the op alone is also measured on its peers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured. Rounds carry the interval; samples of one round are not independent.

    `rounds` are taken at least; while an interval is still too wide for its figure to be quoted, more follow, up to
    `rounds_most` times as many and within `cell_seconds` a cell.
    """

    rounds: int = 5
    rounds_most: int = 8
    samples: int = 20
    warmup: int = 10
    events: int = 5
    burst: int = 20
    allocator: int = 3
    profiled: int = 5
    profiled_full: int = 3
    util_seconds: float = 5.0
    util_hz: float = 20.0
    cold_runs: int = 2
    cold_limit_s: float | None = None
    """Bounds each first call that runs in a process of its own: cold starts, and a peer's tuning. None: 15 minutes."""
    cell_seconds: float = 60.0
    """A bound on the timed part of one cell: rounds are cut short, and the cut is noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a probe was asked to do."""

    workload: str
    paths: tuple[str, ...]
    contexts: tuple[str, ...]
    modes: tuple[str, ...]
    phases: tuple[str, ...]
    shape: tuple[tuple[str, int], ...]
    dtype: str
    device: str
    cache: str
    cold: bool
    seed: int
    effort: Effort
    run: str
    """The run's id; its directory is called the same unless `--out` says otherwise."""
    out: Path
    force: bool = False
    anonymous: bool = False
    command: tuple[str, ...] = ()

    def groups(self) -> Iterator[Group]:
        """Cells that are measured interleaved: all paths and modes of one context and phase."""
        for context in self.contexts:
            for phase in self.phases:
                yield Group(
                    tuple(
                        CellKey(self.workload, path, context, mode, phase, self.shape, self.dtype)
                        for path in self.paths
                        for mode in self.modes
                    )
                )

    def cells(self) -> tuple[CellKey, ...]:
        """Every cell in the order in which results are written."""
        return tuple(key for group in self.groups() for key in group.keys)

    @property
    def on_gpu(self) -> bool:
        """Whether the cells run on a CUDA device."""
        return self.device != "cpu"


@dataclass(frozen=True, slots=True)
class Group:
    """Cells of one context and phase; their rounds are interleaved so that host drift touches all alike."""

    keys: tuple[CellKey, ...]
    label: str | None = None

    @property
    def name(self) -> str:
        """`plain/fwd`, or what the plan calls it."""
        return self.label or f"{self.keys[0].context}/{self.keys[0].phase}"


def slug(workload: str, paths: tuple[str, ...]) -> str:
    """What a run's name says: workload and paths."""
    return "-".join((workload, *paths[:3], *(("more",) if len(paths) > 3 else ())))


def paths_of(workload: str) -> tuple[str, ...]:
    """Every path of the op `workload`: `kda` or one of its relatives."""
    return DELTA[workload].paths if workload in DELTA else PATHS


def default_paths(workload: str) -> str:
    """The paths of the op `workload` that are measured when none is named, as `--paths` takes them."""
    return DELTA[workload].default_paths if workload in DELTA else "fused,tensor"


def choices(flag: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """A comma-separated flag as names, each once, in the order given; UsageError names the unknown and the known."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise UsageError(f"{flag}: nothing named; choose from {', '.join(known)}")
    for name in names:
        if name not in known:
            raise UsageError(f"{flag}: {name!r} is unknown; choose from {', '.join(known)}")
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user typed, before anything is imported or opened. `checked` refuses what has no meaning."""

    paths: str
    contexts: str
    modes: str
    phases: str
    shape: str | None
    chunk: int
    dtype: str
    device: str
    cache: str
    cold: bool
    seed: int
    effort: Effort
    out: Path | None
    force: bool
    anonymous: bool
    command: tuple[str, ...]
    workload: str = "kda"

    def checked(self) -> Request:
        """Itself.

        Errors: UsageError, one line, for whatever has no meaning on any machine; UnavailableError when the only path
        asked for is `fused` and no machine runs such a call on it.
        """
        if self.dtype not in DTYPES:
            raise UsageError(f"--dtype: {self.dtype!r} is unknown; choose from {', '.join(DTYPES)}")
        checked_effort(self)
        plan = self.plan("cpu")
        if plan.paths == ("fused",):
            sizes = dict(plan.shape)
            limit = fused_limit(dtype=plan.dtype, k_dim=sizes["K"], v_dim=sizes["V"], chunk=sizes["C"])
            if limit is not None:
                raise UnavailableError(f"path 'fused' cannot run: {limit}")
        return self

    def plan(self, device: str) -> Plan:
        """The plan on a resolved device (`cpu`, `cuda:N`)."""
        base = HOST_SHAPE if device == "cpu" else PRODUCTION_SHAPE
        sizes = parse_shape(self.shape, ("B", "T", "H", "K", "V")) if self.shape is not None else base
        paths = choices("--paths", self.paths, paths_of(self.workload))
        run = new_run_id(slug(self.workload, paths))
        return Plan(
            workload=self.workload,
            paths=paths,
            contexts=choices("--contexts", self.contexts, CONTEXTS),
            modes=with_eager(choices("--modes", self.modes, MODES)),
            phases=choices("--phases", self.phases, PHASES),
            shape=make_shape(self.workload, (*sizes, self.chunk)),
            dtype=self.dtype,
            device=device,
            cache=self.cache,
            cold=self.cold,
            seed=self.seed,
            effort=effort_on(device, self.effort),
            run=run,
            out=self.out or Path("runs") / run,
            force=self.force,
            anonymous=self.anonymous,
            command=self.command,
        )


def with_eager(modes: tuple[str, ...]) -> tuple[str, ...]:
    """An eager cell stands beside every captured one: it is what is captured, and compared with."""
    return modes if "eager" in modes else ("eager", *modes)


def effort_on(device: str, effort: Effort) -> Effort:
    """What is spent on a resolved device. No more rounds on a CPU: Q08 refuses its times however narrow they are."""
    return effort if device != "cpu" else replace(effort, rounds_most=1)


def checked_effort(request: Request) -> None:
    """Refuse what has no meaning for any op. Errors: UsageError, one line."""
    effort = request.effort
    if request.cache not in ("rotate", "warm"):
        raise UsageError(f"--cache: {request.cache!r} is unknown; choose rotate or warm")
    if request.chunk < 1:
        raise UsageError(f"--chunk {request.chunk}: must be 1 or more")
    if effort.rounds < 1 or effort.samples < 1:
        raise UsageError(f"--rounds {effort.rounds} --samples {effort.samples}: both must be 1 or more")
    if not 0 <= effort.util_seconds <= 3600:
        raise UsageError(f"--util-seconds {effort.util_seconds}: must lie between 0 and 3600")
    if not 0 <= request.seed <= _SEED_MOST:
        raise UsageError(f"--seed {request.seed}: must lie between 0 and {_SEED_MOST}")
