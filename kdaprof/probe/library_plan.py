"""The plan of a probe of attention or of a matrix product: backends or precisions, several dtypes interleaved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kdaprof.errors import UsageError
from kdaprof.probe.plan import Effort, Group, Plan, Request, checked_effort, choices, effort_on, slug, with_eager
from kdaprof.runs.cells import MODES, PHASES, CellKey, make_shape, parse_shape
from kdaprof.runs.ids import new_run_id
from kdaprof.workloads.gemm import facts as gemm
from kdaprof.workloads.mha import facts as mha

LIBRARY_WORKLOADS = ("mha", "gemm")
PRESETS: dict[str, dict[str, tuple[int, ...]]] = {
    "mha": {"field": mha.FIELD_SHAPE},
    "gemm": {"field": gemm.FIELD_SHAPE},
}
"""The sizes of the field report, which are also the default on a GPU."""

LIBRARY_EFFORT = Effort(rounds_most=3, profiled_full=2, util_seconds=0.0, cell_seconds=10.0)
GEMM_UTIL_SECONDS = 2.05
"""A product's own loop: power is an average over the last second, and the first is that of the precision before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryPlan(Plan):
    """`rows` are the (path, dtype) of the cells, in their order."""

    rows: tuple[tuple[str, str], ...]

    def groups(self) -> Iterator[Group]:
        """All backends, or precisions, of one phase, in every dtype: they are measured interleaved."""
        for phase in self.phases:
            yield Group(
                tuple(
                    CellKey(self.workload, path, "plain", mode, phase, self.shape, dtype)
                    for path, dtype in self.rows
                    for mode in self.modes
                )
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRequest(Request):
    """What the user typed for `mha` or `gemm`; `dtype` may name several, and is empty for `gemm`."""

    workload: str
    preset: str | None = None

    def checked(self) -> LibraryRequest:
        """Itself. Errors: UsageError, one line, for whatever has no meaning on any machine."""
        checked_effort(self)
        if self.contexts != "plain":
            raise UsageError(f"--contexts: {self.workload} is measured plain; contexts are the op's")
        self.plan("cpu")
        return self

    def plan(self, device: str) -> LibraryPlan:
        """The plan on a resolved device (`cpu`, `cuda:N`)."""
        rows = self._rows()
        paths = tuple(dict.fromkeys(path for path, _ in rows))
        run = new_run_id(slug(self.workload, paths))
        return LibraryPlan(
            workload=self.workload,
            paths=paths,
            rows=rows,
            contexts=("plain",),
            modes=with_eager(choices("--modes", self.modes, MODES)),
            phases=choices("--phases", self.phases, PHASES if self.workload == "mha" else ("fwd",)),
            shape=self._shape(device),
            dtype=rows[0][1],
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

    def _rows(self) -> tuple[tuple[str, str], ...]:
        if self.workload == "gemm":
            if self.dtype:
                raise UsageError(f"--dtype: a product's paths name its precision: --paths {','.join(gemm.PATHS)}")
            return tuple((path, gemm.DTYPE_OF[path]) for path in choices("--paths", self.paths, gemm.PATHS))
        dtypes = choices("--dtype", self.dtype, mha.DTYPES)
        return tuple((path, dtype) for dtype in dtypes for path in choices("--paths", self.paths, mha.PATHS))

    def _shape(self, device: str) -> tuple[tuple[str, int], ...]:
        known = PRESETS[self.workload]
        if self.preset is not None:
            if self.preset not in known:
                raise UsageError(
                    f"--preset: {self.preset!r} is unknown for {self.workload}; choose from {', '.join(known)}"
                )
            if self.shape is not None:
                raise UsageError("--preset and --shape: give one of them")
            return make_shape(self.workload, known[self.preset])
        if self.shape is not None:
            axes = ("B", "H", "T", "D") if self.workload == "mha" else ("M", "K", "N")
            return make_shape(self.workload, parse_shape(self.shape, axes))
        host = {"mha": mha.HOST_SHAPE, "gemm": gemm.HOST_SHAPE}[self.workload]
        return make_shape(self.workload, host if device == "cpu" else known["field"])
