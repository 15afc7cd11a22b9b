"""What Nsight Compute counted, by phase and kernel, beside the bytes that the cost model expects. Pure functions.

A launch belongs to the phase whose range was open around it. Bytes are those of a call: the sum over a phase's
launches by its calls, where each call is one range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kdaprof.runs.record import Work
from kdaprof.timeline.ncu_csv import NcuKernel

DOMAIN = "kdaprof"
NO_PHASE = "(no range)"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """All launches of one kernel in one phase. Sums over them but for shares, which are weighted by duration.

    `registers` and `occupancy_limit` are those of the launch that has most registers. None: no launch has the figure.
    """

    phase: str
    name: str
    launches: int
    duration_ns: float | None
    dram_read_bytes: float | None
    dram_write_bytes: float | None
    dram_bytes_per_s: float | None
    dram_share: float | None
    sm_share: float | None
    occupancy: float | None
    occupancy_limit: float | None
    registers: int | None
    local_load_bytes: float | None
    local_store_bytes: float | None

    @property
    def spills(self) -> bool | None:
        """Whether local memory was touched; None where it was not counted."""
        counted = [b for b in (self.local_load_bytes, self.local_store_bytes) if b is not None]
        return any(counted) if counted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """A phase per call: measured bytes and the model's, and by how much the first exceed the second.

    `path_bytes`: what this way of computing must move; `compulsory_bytes`: inputs and outputs once. `model_missing`
    says why there is none.
    """

    phase: str
    calls: int
    launches: int
    duration_ns: float | None
    read_bytes: float | None
    write_bytes: float | None
    path_bytes: int | None
    compulsory_bytes: int | None
    model_missing: str | None

    @property
    def dram_bytes(self) -> float | None:
        """Read and written."""
        return None if self.read_bytes is None or self.write_bytes is None else self.read_bytes + self.write_bytes

    @property
    def of_path(self) -> float | None:
        """Measured bytes by the model's of this path; None without either."""
        return None if self.dram_bytes is None or not self.path_bytes else self.dram_bytes / self.path_bytes

    @property
    def of_compulsory(self) -> float | None:
        """Measured bytes by the compulsory ones."""
        return None if self.dram_bytes is None or not self.compulsory_bytes else self.dram_bytes / self.compulsory_bytes


@dataclass(frozen=True, slots=True)
class NcuAnalysis:
    """Rows by phase in the order of their first launch."""

    phases: tuple[PhaseRow, ...]
    kernels: tuple[KernelRow, ...]


def analyse(
    kernels: Sequence[NcuKernel], models: Mapping[str, Work], *, model_missing: str | None = None
) -> NcuAnalysis:
    """Group launches by phase and by kernel. `models`: the work of one call by phase, as far as it is known."""
    by_phase: dict[str, list[NcuKernel]] = {}
    for kernel in kernels:
        by_phase.setdefault(phase_of(kernel), []).append(kernel)
    return NcuAnalysis(
        tuple(_phase(phase, found, models.get(phase), model_missing) for phase, found in by_phase.items()),
        tuple(row for phase, found in by_phase.items() for row in _kernels(phase, found)),
    )


def phase_of(kernel: NcuKernel) -> str:
    """Name of the innermost open range of our domain, else of any domain: the one that began last."""
    ranges = [r for r in kernel.ranges if r.domain == DOMAIN] or list(kernel.ranges)
    return max(ranges, key=lambda r: int(r.id)).name if ranges else NO_PHASE


def _phase(phase: str, found: Sequence[NcuKernel], work: Work | None, why: str | None) -> PhaseRow:
    # Every call has a range, and every range an id, in its process; launches without a range are of one call.
    ids = {(k.process, r.id) for k in found for r in k.ranges if r.name == phase}
    calls = max(1, len(ids))
    missing = None if work else why or f"the cost model has no phase {phase!r}"
    if work is not None and work.bytes_path is None:
        missing = "this path has no listing of its tensors in this phase"
    return PhaseRow(
        phase=phase,
        calls=calls,
        launches=len(found),
        duration_ns=_per_call(_sum([k.duration_ns for k in found]), calls),
        read_bytes=_per_call(_sum([k.dram_read_bytes for k in found]), calls),
        write_bytes=_per_call(_sum([k.dram_write_bytes for k in found]), calls),
        path_bytes=work.bytes_path if work else None,
        compulsory_bytes=work.bytes_compulsory if work else None,
        model_missing=missing,
    )


def _kernels(phase: str, found: Sequence[NcuKernel]) -> list[KernelRow]:
    by_name: dict[str, list[NcuKernel]] = {}
    for kernel in found:
        by_name.setdefault(kernel.name, []).append(kernel)
    rows = [_row(phase, name, launches) for name, launches in by_name.items()]
    return rows if len(rows) <= 8 else sorted(rows, key=lambda row: -(row.duration_ns or 0.0))


def _row(phase: str, name: str, found: Sequence[NcuKernel]) -> KernelRow:
    duration = _sum([k.duration_ns for k in found])
    read, written = _sum([k.dram_read_bytes for k in found]), _sum([k.dram_write_bytes for k in found])
    fullest = max(found, key=lambda k: k.registers or 0.0)
    weights = [k.duration_ns for k in found]
    return KernelRow(
        phase=phase,
        name=name,
        launches=len(found),
        duration_ns=duration,
        dram_read_bytes=read,
        dram_write_bytes=written,
        dram_bytes_per_s=None if read is None or written is None or not duration else (read + written) / duration * 1e9,
        dram_share=_mean([k.dram_share for k in found], weights),
        sm_share=_mean([k.sm_share for k in found], weights),
        occupancy=_mean([k.occupancy for k in found], weights),
        occupancy_limit=fullest.occupancy_limit,
        registers=None if fullest.registers is None else round(fullest.registers),
        local_load_bytes=_sum([k.local_load_bytes for k in found]),
        local_store_bytes=_sum([k.local_store_bytes for k in found]),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    """None as soon as one is missing: half a sum would pass for the whole."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _mean(values: Sequence[float | None], weights: Sequence[float | None]) -> float | None:
    pairs = [(v, w or 0.0) for v, w in zip(values, weights, strict=True) if v is not None]
    total = sum(w for _, w in pairs)
    if len(pairs) != len(values):
        return None
    return sum(v * w for v, w in pairs) / total if total else sum(v for v, _ in pairs) / len(pairs)


def _per_call(value: float | None, calls: int) -> float | None:
    return None if value is None else value / calls
