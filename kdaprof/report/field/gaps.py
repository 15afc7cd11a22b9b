"""What a run does not say: cells that were not measured, figures refused or missing, packages that were absent."""

from __future__ import annotations

from kdaprof.report.gfm import plain
from kdaprof.report.labels import label
from kdaprof.report.proof import who
from kdaprof.report.rules import refused_figures, short_list
from kdaprof.report.scene import Scene
from kdaprof.report.tables import missing_text
from kdaprof.report.trouble import troubles

_ASKED = ("wall_ns", "host_ns", "gpu_busy_ns", "launches", "allocs", "peak_bytes", "cold_ns", "util_mean", "error_l2")


def gaps(scene: Scene) -> list[str]:
    """A line a gap; each is a gap in the comparison, not a favourable assumption."""
    lines = [f"- {plain(t.cells)}: {t.status}. {plain(t.why)}" for t in troubles(scene)]
    missing: dict[str, dict[str, list[str]]] = {}
    for cell in scene.cells:
        for name in _ASKED if cell.record.status == "ok" else ():
            fact = cell.fact(name)
            if fact is not None and fact.value is None:
                cells = missing.setdefault(missing_text(fact), {})
                cells.setdefault(label(name), []).append(scene.naming.name(cell.key, mode=True))
    for why, figures in missing.items():
        who_lacks = short_list(cell for cells in figures.values() for cell in cells)
        lines.append(f"- {short_list(figures)} of {plain(who_lacks)}: {plain(why)}")
    lines += [
        f"- {plain(who(refused))}: measured, and refused by {refused.rule} ({plain(refused.text)})"
        for refused in refused_figures(scene.cells, scene.naming)
    ]
    absent = [f"{v.name} ({v.missing})" for v in scene.record.environment.versions if not v.version and v.missing]
    if absent:
        lines.append(f"- Absent on that machine: {plain(', '.join(absent))}")
    return lines or ["Everything that this run planned was measured."]
