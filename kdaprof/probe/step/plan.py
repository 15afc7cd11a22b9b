"""The plan of a step probe: which steps, cut into which cells, in which modes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kdaprof.errors import UsageError
from kdaprof.probe.plan import RUNNABLE, Effort, Group, Plan, choices, effort_on, with_eager
from kdaprof.runs.cells import CONTEXTS, DTYPES, OWN_PATH, STEP_MODES, CellKey, make_shape
from kdaprof.runs.ids import new_run_id
from kdaprof.workloads.step.spec import COPY_PATH, HOST_MODEL, OP_LINES, PHASES, ModelSize, StepSpec

PRESETS = {"b8": (8, 512, 4), "b10": (10, 512, 4), "b32": (32, 512, 4), "b4": (4, 256, 4)}
"""B, T, iterations of the field reports' steps."""
HOST_STEP = (2, 20, 2)
"""Without a GPU: a whole chunk and a short one a sequence, small enough for Triton's interpreter."""

Shapes = tuple[tuple[tuple[str, int], ...], ...]

STEP_CONTEXTS = tuple(c for c in CONTEXTS if c not in ("no_grad", "inference", "vmap", "partial-grad"))
"""Contexts in which a step can train all its weights."""

STEP_EFFORT = Effort(samples=8, warmup=8, burst=4, profiled=3, profiled_full=2, cold_runs=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan(Plan):
    """Steps of several shapes; `shape` is the first. `target` is a user's own step, which has no path."""

    shapes: Shapes
    size: ModelSize
    chunk: int = 16
    target: str | None = None
    parts: tuple[str, ...] = PHASES
    """Phases that get cells of their own; none in a sweep."""
    lines: tuple[str, ...] = OP_LINES
    own_modes: tuple[tuple[str, str], ...] = ()
    """(path, mode): modes that one path has beside `modes`, which all have."""
    halve: bool = False
    """Whether each path's step also runs with half its iterations, as a step of its own."""

    def groups(self) -> Iterator[Group]:
        """All cells of one context and shape: they are measured interleaved."""
        for context, shape in itertools.product(self.contexts, self.shapes):
            keys = []
            for path in self.paths:
                whole = CellKey(self.workload, path, context, "eager", "step", shape, self.dtype)
                lines = self.lines if path != COPY_PATH else ()
                keys += [whole, *(whole.sibling(phase=phase) for phase in (*self.parts, *lines))]
                modes = dict.fromkeys((*self.modes, *(mode for own, mode in self.own_modes if own == path)))
                keys += [whole.sibling(mode=mode) for mode in modes if mode != "eager"]
                keys += [replace(whole, shape=halved(shape))] if self.halve and path != COPY_PATH else []
            label = "-".join(f"{axis}{size}" for axis, size in shape)
            yield Group(tuple(keys), label=f"{context}/step/{label}")

    def is_half(self, key: CellKey) -> bool:
        """Whether a cell is there for its half of the iterations alone."""
        return self.halve and key.shape not in self.shapes

    def spec(self, key: CellKey) -> StepSpec:
        """The step that a cell is part of."""
        return StepSpec(
            key=key.sibling(phase="step", mode="eager"),
            device=self.device,
            seed=self.seed,
            size=self.size,
            chunk=self.chunk,
            target=self.target,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """What the user typed for a step. `checked` refuses what has no meaning."""

    paths: str
    contexts: str = "plain"
    modes: str = "eager,graph"
    preset: str | None = None
    batch: tuple[int, ...] = ()
    seq: tuple[int, ...] = ()
    max_iter: tuple[int, ...] = ()
    chunk: int = 16
    dtype: str = "float32"
    device: str = "auto"
    cold: bool = False
    seed: int = 0
    ablate: bool = False
    halve: bool = False
    target: str | None = None
    target_parts: tuple[str, ...] = ()
    """Phases of the target's step: known once it was made."""
    split: bool = True
    """Whether phases and op lines get cells of their own."""
    effort: Effort = STEP_EFFORT
    out: Path | None = None
    force: bool = False
    anonymous: bool = False
    command: tuple[str, ...] = ()

    def checked(self) -> StepRequest:
        """Itself. Errors: UsageError, one line, for whatever has no meaning on any machine."""
        if self.dtype not in DTYPES:
            raise UsageError(f"--dtype: {self.dtype!r} is unknown; choose from {', '.join(DTYPES)}")
        if self.preset is not None and self.preset not in PRESETS:
            raise UsageError(f"--preset: {self.preset!r} is unknown; choose from {', '.join(PRESETS)}")
        for flag, sizes in (("--batch", self.batch), ("--seq", self.seq), ("--max-iter", self.max_iter)):
            if any(size < 1 for size in sizes):
                raise UsageError(f"{flag}: sizes must be 1 or more, not {min(sizes)}")
        if self.effort.rounds < 1 or self.effort.samples < 1:
            raise UsageError(f"--rounds {self.effort.rounds} --samples {self.effort.samples}: both must be 1 or more")
        if self.target is not None and ":" not in self.target:
            raise UsageError(f"--target {self.target!r}: write package.module:make_step")
        odd = [size for shape in self.plan("cpu").shapes for axis, size in shape if axis == "iters" and size % 2]
        if self.halve and odd:
            raise UsageError(f"--ablate iters: --max-iter {odd[0]} has no half; give an even number")
        return self

    def plan(self, device: str) -> StepPlan:
        """The plan on a resolved device (`cpu`, `cuda:N`)."""
        if self.target is not None:
            one = (make_shape("target", (1,)),)
            return self._plan(device, "target", (OWN_PATH,), one, parts=self.target_parts, lines=())
        base = PRESETS[self.preset] if self.preset else HOST_STEP if device == "cpu" else PRESETS["b8"]
        axes = [given or (default,) for given, default in zip((self.batch, self.seq, self.max_iter), base, strict=True)]
        shapes: Shapes = tuple(make_shape("step", sizes) for sizes in itertools.product(*axes))
        paths = choices("--paths", self.paths, RUNNABLE) + ((COPY_PATH,) if self.ablate else ())
        parts, lines = (PHASES, OP_LINES) if self.split else ((), ())
        return self._plan(device, "step", paths, shapes, parts=parts, lines=lines)

    def _plan(
        self,
        device: str,
        workload: str,
        paths: tuple[str, ...],
        shapes: Shapes,
        *,
        parts: tuple[str, ...],
        lines: tuple[str, ...],
    ) -> StepPlan:
        modes, own_modes = modes_of(self.modes, paths)
        run = new_run_id("-".join((workload, *paths[:3])))
        return StepPlan(
            workload=workload,
            paths=paths,
            contexts=choices("--contexts", self.contexts, STEP_CONTEXTS),
            modes=with_eager(modes),
            phases=("step",),
            shape=shapes[0],
            shapes=shapes,
            dtype=self.dtype,
            device=device,
            cache="rotate",
            cold=self.cold,
            seed=self.seed,
            effort=effort_on(device, self.effort),
            run=run,
            out=self.out or Path("runs") / run,
            force=self.force,
            anonymous=self.anonymous,
            command=self.command,
            size=HOST_MODEL if device == "cpu" else ModelSize(),
            chunk=self.chunk,
            target=self.target,
            parts=parts,
            lines=lines,
            own_modes=own_modes,
            halve=self.halve and self.target is None,
        )


def halved(shape: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """The shape of a step with half its iterations."""
    return tuple((axis, size // 2 if axis == "iters" else size) for axis, size in shape)


def modes_of(text: str, paths: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """`eager,graph,fused:reduce-overhead` → the modes of all paths, and (path, mode) of those that one path has alone.

    Errors: UsageError for a mode that is unknown or a path that is not measured.
    """
    parts = [part.strip().rpartition(":") for part in text.split(",")]
    common = [mode for path, _, mode in parts if not path]
    own = [(path, mode) for path, _, mode in parts if path]
    if own:
        choices("--modes", ",".join(path for path, _ in own), paths)
        choices("--modes", ",".join(mode for _, mode in own), STEP_MODES)
    return choices("--modes", ",".join(common or ["eager"]), STEP_MODES), tuple(dict.fromkeys(own))
