"""A step's memory: what it allocates, how the pool grows, where the largest allocations come from."""

from __future__ import annotations

from kdaprof.analysis.stats import median
from kdaprof.analysis.step.allocator import fragmentation, growth_of, pools_of
from kdaprof.report.gfm import plain, text_table
from kdaprof.report.scene import Scene
from kdaprof.report.step import step_name
from kdaprof.runs.cells import CellKey
from kdaprof.runs.memory import StepMemory
from kdaprof.runs.units import format_bytes, format_fraction, format_ns

HEADERS = (
    "step", "allocations", "peak", "reserved", "reserved grows, a step", "free but in pieces", "warm pool",
    "emptied pool",
)  # fmt: skip
SITE_HEADERS = ("call site", "size", "times a step", "bytes a step")
LEGEND = (
    "Pieces: share of the reserved memory that is free but not in the largest free block; the pool is that of the "
    "process, other paths' weights included. Emptied: the pool was given back to the driver right before the step. "
    "Walls of the two pools are medians of steps in turns; (no order) marks those whose samples overlap."
)


def memory_section(scene: Scene) -> list[str]:
    """Each step whose memory was recorded, and its largest repeated allocations below."""
    found = recorded(scene)
    if not found:
        return []
    lines = text_table(HEADERS, [memory_row(key, memory) for key, memory in found], right=range(1, len(HEADERS)))
    lines += ["", LEGEND]
    for key, memory in found:
        lines += ["", f"**{plain(sites_title(key))}**", "", *_sites(memory)]
    return lines


def recorded(scene: Scene) -> tuple[tuple[CellKey, StepMemory], ...]:
    """The steps whose memory was recorded."""
    return tuple(
        (cell.key, cell.observed.memory)
        for cell in scene.record.cells
        if cell.observed is not None and cell.observed.memory is not None
    )


def memory_row(key: CellKey, memory: StepMemory) -> list[str]:
    """One step under `HEADERS`."""
    growth, pieces, pools = growth_of(memory), fragmentation(memory), pools_of(memory)
    overlap = "" if pools is None or pools.apart else " (no order)"
    return [
        step_name(key),
        f"{median(memory.allocs):g}",
        format_bytes(memory.peak_bytes),
        format_bytes(memory.reserved_bytes[-1]),
        "—" if growth is None else format_bytes(growth.bytes_a_step),
        "—" if pieces is None else format_fraction(pieces),
        "—" if pools is None else format_ns(pools.warm_ns),
        "—" if pools is None else format_ns(pools.emptied_ns) + overlap,
    ]


def sites_title(key: CellKey) -> str:
    """What stands above a step's call sites."""
    return f"{step_name(key)}: largest repeated allocations"


def site_rows(memory: StepMemory) -> list[list[str]]:
    """Call sites under `SITE_HEADERS`."""
    steps = len(memory.allocs)
    return [
        [s.where, format_bytes(s.size_bytes), f"{s.count / steps:.3g}", format_bytes(s.size_bytes * s.count / steps)]
        for s in memory.sites
    ]


def no_sites(memory: StepMemory) -> str:
    """Why there is no call site."""
    return f"None: {memory.missing or 'no size came twice from one place'}."


def _sites(memory: StepMemory) -> list[str]:
    if not memory.sites:
        return [plain(no_sites(memory))]
    lines = text_table(SITE_HEADERS, site_rows(memory), right=(1, 2, 3))
    return [*lines, "", f"{plain(memory.missing)}."] if memory.missing else lines
