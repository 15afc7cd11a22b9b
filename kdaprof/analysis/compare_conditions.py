"""What two runs do not share: machine, versions, settings, clocks, cache policy, shapes. Named before any ratio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from kdaprof.analysis.stats import median
from kdaprof.runs.environment import Environment
from kdaprof.runs.record import CellRecord, RunRecord
from kdaprof.runs.units import format_rate

CLOCK_MOVED = 0.05
"""SM clocks whose medians differ by more than this are different (as Q04 within a run)."""

_FOLLOWS = frozenset({"nvml", "kdaprof"})
"""NVML comes with the driver; kdaprof's own version is told as the tool's."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs, as text for both sides."""

    what: str
    base: str
    cand: str


def differences(base: RunRecord, cand: RunRecord) -> tuple[Difference, ...]:
    """Everything of the conditions that differs, machine first; () when the runs were alike."""
    pairs = (
        *_machine(base.environment, cand.environment),
        *_versions(base.environment, cand.environment),
        ("kdaprof", base.tool, cand.tool),
        *_settings(base.environment, cand.environment),
        *_clocks(base, cand),
        ("cache policy", _over_cells(base, _cache), _over_cells(cand, _cache)),
        ("shapes", _over_cells(base, _shape), _over_cells(cand, _shape)),
        ("commit", _commit(base.environment), _commit(cand.environment)),
    )
    return tuple(Difference(what, one, other) for what, one, other in pairs if one != other)


def _machine(base: Environment, cand: Environment) -> Iterator[tuple[str, str, str]]:
    yield "GPU", base.gpu.name if base.gpu else "none", cand.gpu.name if cand.gpu else "none"
    yield "CPU", _cpu(base), _cpu(cand)
    if base.gpu and cand.gpu and base.gpu.name == cand.gpu.name:
        yield "card", base.gpu.uuid or "unknown", cand.gpu.uuid or "unknown"


def _cpu(env: Environment) -> str:
    return f"{env.host.cpu_model or 'unknown'}, {env.host.cores_total or 'unknown'} cores"


def _versions(base: Environment, cand: Environment) -> Iterator[tuple[str, str, str]]:
    names = dict.fromkeys(version.name for env in (base, cand) for version in env.versions)
    for name in names:
        if name not in _FOLLOWS:
            yield name, base.version(name) or "none", cand.version(name) or "none"


def _settings(base: Environment, cand: Environment) -> Iterator[tuple[str, str, str]]:
    if base.torch and cand.torch:
        for field in fields(base.torch):
            yield f"torch {field.name}", str(getattr(base.torch, field.name)), str(getattr(cand.torch, field.name))
    yield "variables", _variables(base), _variables(cand)


def _variables(env: Environment) -> str:
    return " ".join(f"{variable.name}={variable.value}" for variable in env.variables) or "none"


def _clocks(base: RunRecord, cand: RunRecord) -> Iterator[tuple[str, str, str]]:
    first, second = _clock(base), _clock(cand)
    if first is not None and second is not None and abs(first - second) > CLOCK_MOVED * max(first, second):
        yield "SM clock", format_rate(first, "Hz"), format_rate(second, "Hz")
    yield "power limit", _limit(base), _limit(cand)


def _clock(run: RunRecord) -> float | None:
    """The median of the readings while the run measured; an idle card before and after says nothing."""
    read = [snap.gpu.sm_clock_hz for snap in run.conditions.during if snap.gpu and snap.gpu.sm_clock_hz]
    return median(read) if read else None


def _limit(run: RunRecord) -> str:
    gpu = run.conditions.before.gpu if run.conditions.before else None
    return f"{gpu.power_limit_w:.0f} W" if gpu and gpu.power_limit_w is not None else "unknown"


def _over_cells(run: RunRecord, say: Callable[[CellRecord], str | None]) -> str:
    return ", ".join(sorted({text for cell in run.cells if (text := say(cell))})) or "none"


def _cache(cell: CellRecord) -> str | None:
    return cell.observed.cache if cell.observed else None


def _shape(cell: CellRecord) -> str:
    return f"{cell.key.workload} {cell.key.extents} {cell.key.dtype}"


def _commit(env: Environment) -> str:
    return f"{env.git_commit[:12]}{' with changes' if env.git_dirty else ''}" if env.git_commit else "unknown"
